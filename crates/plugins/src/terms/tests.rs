use super::*;
use serde_json::{Value, json};

fn term(epoch: u64, leader: &str) -> Term {
    serde_json::from_value(json!({"epoch": epoch, "leader": leader})).expect("a term")
}

fn ended(epoch: u64, leader: &str, end: &str) -> Term {
    serde_json::from_value(json!({"epoch": epoch, "leader": leader, "ended": end})).expect("a term")
}

fn seat(current: Term, former: Option<Term>) -> SeatTerms {
    SeatTerms { current, former: former.into_iter().collect(), silent: None }
}

fn view(terms: Vec<Term>, seat: Option<&SeatTerms>) -> Vec<(u64, bool, String, u64)> {
    let namespace = Namespace::new("test").expect("valid");
    let rows = TermsView::of(&namespace, Some(&TermsDocument { terms }), seat).terms;
    rows.into_iter().map(|row| (row.term.epoch, row.leads, row.why, row.unrecorded)).collect()
}

#[test]
fn hi3_a_full_list_of_the_longest_rows_fits_into_a_document() {
    let long = "x".repeat(128);
    let row = |epoch: u64| -> Term {
        serde_json::from_value(json!({
            "epoch": (1_u64 << 53) - 1 - epoch, "leader": long, "incarnation": "00000000000000ab",
            "from": "2026-11-15T15:57:09.279Z", "until": "2026-11-15T15:57:09.279Z", "ended": "processes stuck",
            "silentMs": u64::MAX, "by": "\u{1F600}".repeat(500),
        }))
        .expect("a term")
    };
    let rows = (1..TERMS_MAX as u64 + 200).map(row).collect();
    let mut document = TermsDocument { terms: rows };
    document.learn_from(&seat(row(0), None));
    assert_eq!(document.terms.len(), TERMS_MAX);
    assert_eq!(document.terms[0].epoch, (1 << 53) - 1, "the newest are kept");
    let bytes = serde_json::to_vec(&document).expect("JSON").len();
    assert!(bytes < 1024 * 1024 - 1024, "{bytes}");
}

#[test]
fn hi3_a_list_in_any_order_with_any_epochs_is_put_in_order() {
    let disorder = [3, 1, 3, 7, 2, 1].map(|epoch| ended(epoch, "pod-a", "shutdown")).to_vec();
    let document = TermsDocument { terms: disorder };
    let epochs = |most| {
        TermsDocument::up_to(Some(&document), most).terms.iter().map(|term| term.epoch).collect::<Vec<_>>()
    };
    assert_eq!(epochs(u64::MAX), [7, 3, 2, 1]);
    assert_eq!(epochs(6), [3, 2, 1]);
}

#[test]
fn hi3_the_seat_tells_the_newest_two_terms_and_the_others_are_over() {
    let now = seat(term(9, "pod-b"), Some(ended(8, "pod-a", "step down")));
    let listed = vec![term(8, "pod-a"), term(5, "pod-c"), ended(4, "pod-b", "shutdown")];
    let row = |epoch, leads, why: &str, unrecorded| (epoch, leads, why.to_owned(), unrecorded);
    assert_eq!(
        view(listed.clone(), Some(&now)),
        [
            row(9, true, "leads", 0),
            row(8, false, "stepped down", 2),
            row(5, false, "not known", 0),
            row(4, false, "shut down", 3)
        ]
    );
    let silent = SeatTerms { silent: Some(Duration::from_millis(12_340)), ..now.clone() };
    assert_eq!(view(Vec::new(), Some(&silent))[0], row(9, false, "silent for 12.3 s", 0));
    let vacant = seat(ended(9, "pod-b", "shutdown"), None);
    assert_eq!(view(listed.clone(), Some(&vacant))[0], row(9, false, "shut down", 0));
    // Nobody leads if there is no seat, whatever the list says.
    assert!(view(listed, None).iter().all(|(_, leads, ..)| !leads));
    assert_eq!(view(Vec::new(), None), []);
}

#[test]
fn hi3_a_seat_that_was_restored_begins_its_epochs_again() {
    let life = |life: &str| -> Term {
        serde_json::from_value(json!({"epoch": 3, "leader": "pod-a", "incarnation": life})).expect("a term")
    };
    let (before, after) = (life("00000000000000aa"), life("00000000000000bb"));
    let mut document = TermsDocument { terms: vec![before.clone(), ended(2, "pod-b", "shutdown")] };
    document.learn(&before);
    assert_eq!(document.terms[0], before);
    document.learn(&after);
    assert_eq!((&document.terms[0], document.terms.len()), (&after, 2));
}

#[test]
fn hi3_the_view_is_flat_json() {
    let namespace = Namespace::new("test").expect("valid");
    let now = seat(term(1, "pod-a"), None);
    let view = TermsView::of(&namespace, None, Some(&now));
    let expected: Value = json!({"namespace": "test", "epoch": 1, "terms": [
        {"epoch": 1, "leader": "pod-a", "leads": true, "why": "leads", "unrecorded": 0}]});
    assert_eq!(serde_json::to_value(view).expect("JSON"), expected);
}

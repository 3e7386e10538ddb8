//! What must hold for `terms.json`, whatever it contains; see [`crate::fuzzing`].

use super::{TERMS_MAX, TermsDocument, TermsView};
use crate::fuzzing::assert_readable;
use tenure::admin::{SeatTerms, Term};
use tenure::fuzzing::document;
use tenure::id::Namespace;

/// Checks any body of `terms.json`.
pub fn terms(body: &[u8]) -> bool {
    let Some((_, Some(found), again)) = document::<TermsDocument>(body) else { return false };
    let (_, same, _) = document::<TermsDocument>(&again).expect("our own");
    assert_eq!(same.as_ref(), Some(&found));
    let mut told = TermsDocument::up_to(Some(&found), 9);
    let current: Term = serde_json::from_str(r#"{"epoch": 9, "leader": "pod-b"}"#).expect("a term");
    let seat = SeatTerms {
        current,
        former: found.terms.iter().filter(|term| term.epoch < 9).take(4).cloned().collect(),
        silent: None,
    };
    told.learn_from(&seat);
    assert!(told.terms.len() <= TERMS_MAX && told.terms.iter().all(|term| term.epoch <= 9));
    assert!(
        told.terms.is_sorted_by(|newer, older| newer.epoch > older.epoch),
        "each epoch once, the newest first"
    );
    let before = told.clone();
    told.learn_from(&seat);
    assert_eq!(told, before, "nothing is new in it");
    let namespace = Namespace::new("fuzz").expect("valid");
    let view = TermsView::of(&namespace, Some(&found), Some(&seat));
    assert!(view.terms.iter().filter(|row| row.leads).count() <= 1, "one leader");
    for row in &view.terms {
        assert_readable(&row.why);
        assert_eq!(row.leads, row.term.epoch == 9 && row.term.ended.is_none());
    }
    true
}

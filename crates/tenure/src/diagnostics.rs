//! Diagnostics: one log line per heartbeat cycle, with what was observed, decided and sent since the previous one.

use tenure_core::{
    Answer, Cycle, Effect, Input, NodesAnswer, ProbeAnswer, Request, Role, Seat, SeatAnswer, SeatState,
    WriteAnswer,
};

/// Most words of each kind in a line. Otherwise a node that starts while its store is away would fill the line.
const WORDS_MAX: usize = 12;

/// What happened since the last line.
#[derive(Default)]
pub(crate) struct CycleLog {
    observed: Words,
    decided: Words,
    sent: Words,
}

#[derive(Default)]
struct Words {
    words: Vec<String>,
    left_out: usize,
}

impl Words {
    fn push(&mut self, word: String) {
        if self.words.len() == WORDS_MAX {
            self.left_out += 1;
        } else {
            self.words.push(word);
        }
    }

    /// Returns the words and forgets them.
    fn take(&mut self) -> String {
        let Words { words, left_out } = std::mem::take(self);
        let more = if left_out > 0 { format!(", and {left_out} more") } else { String::new() };
        if words.is_empty() { "nothing".to_owned() } else { words.join(", ") + &more }
    }
}

impl CycleLog {
    /// Notes one step of the core.
    pub(crate) fn note(&mut self, input: &Input, effects: &[Effect]) {
        if let Some(word) = observed(input) {
            self.observed.push(word);
        }
        for effect in effects {
            if let Effect::Request(_, request) = effect {
                self.sent.push(sent(request));
            }
        }
    }

    /// Notes an event that the core emitted, by name.
    pub(crate) fn decided(&mut self, event: &str) {
        self.decided.push(event.replace('_', " "));
    }

    /// Writes the line for a finished cycle.
    pub(crate) fn write(
        &mut self,
        node: &str,
        namespace: &str,
        role: Option<Role>,
        epoch: u64,
        cycle: Cycle,
    ) {
        let (observed, decided, sent) = (self.observed.take(), self.decided.take(), self.sent.take());
        let (role, cycle_ms) = (role.map_or("no role", crate::metrics::role_name), cycle.duration_ms);
        tracing::info!(
            target: "tenure::diagnostics",
            node, namespace, role, epoch, cycle_ms,
            "{role}, epoch {epoch}, {cycle_ms} ms: observed {observed}; decided {decided}; sent {sent}"
        );
    }
}

fn observed(input: &Input) -> Option<String> {
    match input {
        Input::Start { .. } => Some("start".to_owned()),
        Input::Wake(_) => None,
        Input::Answer { answer, .. } => Some(answered(answer)),
        Input::ProcessesStopped { epoch } => Some(format!("work of epoch {} stopped", epoch.0)),
        Input::StepDown => Some("asked to step down".to_owned()),
        Input::StandAside { hold_ms } => Some(format!("asked to stand aside for {hold_ms} ms")),
        Input::Raise { above } => Some(format!("asked to claim above epoch {}", above.0)),
        Input::Stop => Some("asked to stop".to_owned()),
    }
}

fn answered(answer: &Answer) -> String {
    match answer {
        Answer::Probe(ProbeAnswer::Safe) => "store safe".to_owned(),
        Answer::Probe(ProbeAnswer::Unsafe) => "store unsafe".to_owned(),
        Answer::Probe(ProbeAnswer::Unavailable) => "probe unanswered".to_owned(),
        Answer::Probe(ProbeAnswer::Denied) => "probe refused".to_owned(),
        Answer::Seat(SeatAnswer::Found { seat, .. }) => format!("seat {}", described(seat)),
        Answer::Seat(SeatAnswer::Unchanged) => "seat unchanged".to_owned(),
        Answer::Seat(SeatAnswer::Absent) => "no seat".to_owned(),
        Answer::Seat(SeatAnswer::Unreadable { .. }) => "seat unreadable".to_owned(),
        Answer::Seat(SeatAnswer::Unavailable) => "look unanswered".to_owned(),
        Answer::Seat(SeatAnswer::Denied) => "look refused".to_owned(),
        Answer::SeatWritten(outcome) => format!("seat write {}", outcome_word(outcome)),
        Answer::PresenceWritten(outcome) => format!("presence write {}", outcome_word(outcome)),
        Answer::PresenceRemoved => "presence removed".to_owned(),
        Answer::Nodes(NodesAnswer::Found { nodes, .. }) => format!("{} presences", nodes.len()),
        Answer::Nodes(NodesAnswer::Unavailable) => "list unanswered".to_owned(),
    }
}

fn outcome_word(outcome: &WriteAnswer) -> &'static str {
    match outcome {
        WriteAnswer::Won(_) => "won",
        WriteAnswer::Lost => "lost",
        WriteAnswer::Unknown => "unknown",
        WriteAnswer::Unavailable => "not delivered",
        WriteAnswer::Denied => "refused",
    }
}

fn described(seat: &Seat) -> String {
    let state = match seat.state {
        SeatState::Held => "held by",
        SeatState::Vacant => "vacated by",
    };
    format!("{state} {} (epoch {}, renewal {})", seat.holder.node, seat.epoch.0, seat.renewals)
}

fn sent(request: &Request) -> String {
    match request {
        Request::Probe => "probe".to_owned(),
        Request::ReadSeat { .. } => "read of the seat".to_owned(),
        Request::WriteSeat { seat, .. } => match (seat.state, seat.renewals) {
            (SeatState::Vacant, _) => format!("vacate epoch {}", seat.epoch.0),
            (SeatState::Held, 0) => format!("claim of epoch {}", seat.epoch.0),
            (SeatState::Held, renewal) => format!("renewal {renewal}"),
        },
        Request::WritePresence { .. } => "presence".to_owned(),
        Request::RemovePresence => "removal of the presence".to_owned(),
        Request::ListNodes => "list of presences".to_owned(),
    }
}

//! The submitter of a node: it asks the leader for jobs, whoever leads.

use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Key, Op, Said, Value};
use crate::world::World;
use tenure_core::document::{DocumentAnswer, DocumentRequest};
use tenure_core::{
    Ask, AskAnswer, Incarnation, RequestId, RequestsDoc, Submitter, SubmitterCommand, SubmitterOutput,
};

/// How long somebody waits for the answer.
const PATIENCE_MS: u64 = 12_000;

/// The submitter of one life of a node, and what was asked of it.
pub(crate) struct JobSubmission {
    part: Part<Submitter>,
    asked: Vec<Ask>,
}

impl Played for Submitter {
    const NAME: PartName = PartName::Submitter;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Submitter>> {
        let Who::Node(node) = who else { return None };
        Some(&mut world.nodes[node].submission.as_mut()?.part)
    }

    fn op(_: &mut World, _: Who, _: RequestId, request: &DocumentRequest<RequestsDoc>) -> Option<Op> {
        Some(Op::document(Key::Requests, request, |stamp, body| Value::Requests(stamp, body.clone())))
    }

    fn answer(
        _: &mut World,
        _: Who,
        _: DocumentRequest<RequestsDoc>,
        said: Said,
    ) -> DocumentAnswer<RequestsDoc> {
        said.document(|value| value.requests().map(|(stamp, doc)| (stamp, doc.clone())))
    }

    fn output(world: &mut World, who: Who, output: SubmitterOutput) {
        let Who::Node(node) = who else { return };
        let Some(submission) = &world.nodes[node].submission else { return };
        let Some(ask) = submission.asked.get(output.token as usize) else { return };
        if matches!(output.answer, AskAnswer::Asked { .. }) {
            world.job_checks.promise(ask);
        }
    }
}

impl World {
    /// Somebody on this node asks something of the leader.
    pub(crate) fn ask_from(&mut self, node: usize, ask: Ask) {
        if !self.nodes[node].running {
            return;
        }
        if self.nodes[node].submission.is_none() {
            let life = self.new_life();
            let part = Part::new(Submitter::new(Incarnation(life), PATIENCE_MS), life);
            self.nodes[node].submission = Some(JobSubmission { part, asked: Vec::new() });
        }
        let Some(submission) = &mut self.nodes[node].submission else { return };
        let token = submission.asked.len() as u64;
        submission.asked.push(ask.clone());
        self.job_checks.asks(&ask);
        self.command::<Submitter>(Who::Node(node), SubmitterCommand::Ask { token, asks: vec![ask] });
    }
}

//! The submitter of a node: it asks the leader for jobs, whoever leads.

use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Key, Op, Said, Value};
use crate::world::World;
use tenure_core::document::{DocumentAnswer, DocumentRequest};
use tenure_core::{
    Incarnation, Order, OrderAnswer, OrdersDoc, RequestId, Submitter, SubmitterCommand, SubmitterOutput,
};

/// How long somebody waits for the answer.
const PATIENCE_MS: u64 = 12_000;

/// The submitter of one life of a node, and the orders it was given.
pub(crate) struct JobSubmission {
    part: Part<Submitter>,
    orders: Vec<Order>,
}

impl Played for Submitter {
    const NAME: PartName = PartName::Submitter;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Submitter>> {
        let Who::Node(node) = who else { return None };
        Some(&mut world.nodes[node].submission.as_mut()?.part)
    }

    fn op(_: &mut World, _: Who, _: RequestId, request: &DocumentRequest<OrdersDoc>) -> Option<Op> {
        Some(Op::document(Key::Orders, request, |stamp, body| Value::Orders(stamp, body.clone())))
    }

    fn answer(_: &mut World, _: Who, _: DocumentRequest<OrdersDoc>, said: Said) -> DocumentAnswer<OrdersDoc> {
        said.document(|value| value.orders().map(|(stamp, doc)| (stamp, doc.clone())))
    }

    fn output(world: &mut World, who: Who, output: SubmitterOutput) {
        let Who::Node(node) = who else { return };
        let Some(submission) = &world.nodes[node].submission else { return };
        let Some(order) = submission.orders.get(output.token as usize) else { return };
        if matches!(output.answer, OrderAnswer::Accepted { .. }) {
            world.job_checks.promise(order);
        }
    }
}

impl World {
    /// Somebody on this node asks something of the leader.
    pub(crate) fn order_from(&mut self, node: usize, order: Order) {
        if !self.nodes[node].running {
            return;
        }
        if self.nodes[node].submission.is_none() {
            let life = self.new_life();
            let part = Part::new(Submitter::new(Incarnation(life), PATIENCE_MS), life);
            self.nodes[node].submission = Some(JobSubmission { part, orders: Vec::new() });
        }
        let Some(submission) = &mut self.nodes[node].submission else { return };
        let token = submission.orders.len() as u64;
        submission.orders.push(order.clone());
        self.job_checks.ordered(&order);
        self.command::<Submitter>(Who::Node(node), SubmitterCommand::Order { token, orders: vec![order] });
    }
}

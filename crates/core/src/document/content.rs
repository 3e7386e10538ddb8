//! The body beside a document.

use super::What;

/// For owners of a document who need to know what stands there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Content<T> {
    stored: Option<T>,
    sent: Option<T>,
}

impl<T> Default for Content<T> {
    fn default() -> Content<T> {
        Content { stored: None, sent: None }
    }
}

impl<T: Clone> Content<T> {
    /// The body that stands there, as far as is known.
    pub fn get(&self) -> Option<&T> {
        self.stored.as_ref()
    }

    /// Remembers a body that is about to be written, and returns it.
    pub fn send(&mut self, body: T) -> T {
        self.sent = Some(body.clone());
        body
    }

    pub fn settle(&mut self, what: &What, read: Option<T>) {
        match what {
            What::Landed { .. } => self.stored = read.or_else(|| self.sent.take()),
            What::Empty | What::Removed => self.stored = None,
            What::Loaded | What::Shared | What::Overtaken(_) | What::Superseded(_) => self.stored = read,
            What::Nothing | What::Same | What::Blocked { .. } | What::Failed { .. } => {}
        }
    }
}

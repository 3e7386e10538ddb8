//! What an attempt has said, in bounded memory: the beginning and the end. Pure.

use super::OutputStream;
use std::collections::VecDeque;
use std::ops::Range;

/// How much is kept of the beginning, and as much of the end.
pub(super) const END_MAX: usize = 128 * 1024;

/// What a change of streams counts as, beside the text: about what it takes in the object.
const CHANGE_WEIGHT: usize = 32;

/// Everything counts in bytes of text: bytes that are not UTF-8 become U+FFFD before they are counted, so a position means the same to
/// whoever writes and whoever reads.
#[derive(Debug)]
pub(super) struct Transcript {
    most: usize,
    /// The beginning of a character whose other bytes have not come yet, of either stream.
    partial: [Vec<u8>; 2],
    first: Part,
    first_is_full: bool,
    last: Part,
    bytes: u64,
}

/// Text without a gap.
#[derive(Debug, Default)]
struct Part {
    /// Which streams it came from, and how many bytes from each.
    runs: VecDeque<(OutputStream, usize)>,
    text: VecDeque<u8>,
    weight: usize,
}

impl Transcript {
    pub(super) fn new() -> Transcript {
        Transcript::keeping(END_MAX)
    }

    /// Keeps so much of either end.
    fn keeping(most: usize) -> Transcript {
        let (partial, first, last) = Default::default();
        Transcript { most, partial, first, first_is_full: false, last, bytes: 0 }
    }

    /// How much was said, except the beginnings of characters that are not complete yet.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How much was said between the beginning and the end that are kept.
    pub(super) fn left_out(&self) -> u64 {
        self.bytes - (self.first.text.len() + self.last.text.len()) as u64
    }

    pub(super) fn write(&mut self, stream: OutputStream, bytes: &[u8]) {
        let mut partial = std::mem::take(&mut self.partial[stream as usize]);
        let bytes = match partial.is_empty() {
            true => bytes,
            false => {
                partial.extend_from_slice(bytes);
                &partial
            }
        };
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.add(stream, chunk.valid());
            let invalid = chunk.invalid();
            let is_cut_off = || std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && is_cut_off() {
                self.partial[stream as usize] = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.add(stream, "\u{fffd}");
            }
        }
    }

    /// Nothing more comes: characters that are not complete never will be.
    pub(super) fn close(&mut self) {
        for stream in OutputStream::ALL {
            if !std::mem::take(&mut self.partial[stream as usize]).is_empty() {
                self.add(stream, "\u{fffd}");
            }
        }
    }

    fn add(&mut self, stream: OutputStream, text: &str) {
        self.bytes += text.len() as u64;
        let fits = if self.first_is_full { 0 } else { self.first.fitting(stream, text, self.most) };
        let (head, rest) = text.split_at(fits);
        self.first.push(stream, head);
        if rest.is_empty() {
            return;
        }
        self.first_is_full = true;
        // Of what is longer than all that is kept, the beginning need not be looked at.
        let beyond = text_floor(rest, rest.len().saturating_sub(self.most));
        if beyond > 0 {
            self.last = Part::default();
        }
        self.last.push(stream, &rest[beyond..]);
        self.last.shorten(self.most);
    }

    /// What is kept: the beginning, and the end. Nothing is missing between them if nothing was left out.
    pub(super) fn parts(&mut self) -> [Vec<(OutputStream, &str)>; 2] {
        [self.first.segments(), self.last.segments()]
    }
}

/// What a byte counts as: itself, or what a control character takes as JSON.
fn weight(byte: u8) -> usize {
    if byte < 0x20 && !matches!(byte, b'\n' | b'\r' | b'\t') { 6 } else { 1 }
}

fn is_within_character(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// The last boundary between characters that is not after this.
pub(super) fn text_floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

impl Part {
    /// What a change to this stream would count as.
    fn change_weight(&self, stream: OutputStream) -> usize {
        match self.runs.back() {
            Some((last, _)) if *last != stream => CHANGE_WEIGHT,
            _ => 0,
        }
    }

    /// How much of the text can be added, in whole characters.
    fn fitting(&self, stream: OutputStream, text: &str, most: usize) -> usize {
        let mut weighs = self.weight + self.change_weight(stream);
        let too_much = |byte: &u8| {
            weighs += weight(*byte);
            weighs > most
        };
        text_floor(text, text.as_bytes().iter().position(too_much).unwrap_or(text.len()))
    }

    fn push(&mut self, stream: OutputStream, text: &str) {
        if text.is_empty() {
            return;
        }
        self.weight += self.change_weight(stream) + text.bytes().map(weight).sum::<usize>();
        self.text.extend(text.as_bytes());
        match self.runs.back_mut() {
            Some((last, bytes)) if *last == stream => *bytes += text.len(),
            Some(_) | None => self.runs.push_back((stream, text.len())),
        }
    }

    /// Leaves out characters at the beginning, until the rest counts as no more than this.
    fn shorten(&mut self, most: usize) {
        while self.weight > most || self.text.front().is_some_and(|byte| is_within_character(*byte)) {
            let Some(byte) = self.text.pop_front() else { return };
            self.weight -= weight(byte);
            if let Some((_, bytes)) = self.runs.front_mut() {
                *bytes -= 1;
                if *bytes == 0 {
                    self.runs.pop_front();
                    self.weight -= if self.runs.is_empty() { 0 } else { CHANGE_WEIGHT };
                }
            }
        }
    }

    fn segments(&mut self) -> Vec<(OutputStream, &str)> {
        let text: &[u8] = self.text.make_contiguous();
        let mut at = 0;
        let segment = |(stream, bytes): &(OutputStream, usize)| {
            let Range { start, end } = at..at + bytes;
            at = end;
            // It is only ever cut between characters.
            (*stream, std::str::from_utf8(&text[start..end]).unwrap_or_default())
        };
        self.runs.iter().map(segment).collect()
    }
}

#[cfg(test)]
mod tests;

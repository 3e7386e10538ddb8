//! What a service behind a fence that starts at epoch 5 answers, in order, whatever it is written in.
#![allow(dead_code, unreachable_pub, missing_docs)]

/// The headers `Tenure-Epoch` of a request, the status of the answer, and the newest epoch a refusal names.
pub const EPOCH_REQUESTS: [(&[&str], u16, u64); 17] = [
    (&["4"], 412, 5),
    (&["5"], 200, 5),
    (&[], 428, 5),
    (&[""], 428, 5),
    (&["0"], 428, 5),
    (&["-6"], 428, 5),
    (&["+6"], 428, 5),
    (&["6.0"], 428, 5),
    (&["0x6"], 428, 5),
    (&["six"], 428, 5),
    (&["6", "7"], 428, 5),
    (&["9007199254740992"], 428, 5),
    (&["99999999999999999999999999"], 428, 5),
    (&["7"], 200, 7),
    (&["6"], 412, 7),
    (&["07"], 200, 7),
    (&["7"], 200, 7),
];

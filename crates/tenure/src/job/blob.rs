//! Bytes in JSON: as text where that is short, otherwise as hex. Never much more than twice as long.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Write;
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Blob(pub(crate) Arc<[u8]>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Hex { hex: String },
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(&self.0).ok().filter(|text| {
            let controls = text.bytes().filter(|byte| *byte < 0x20 || *byte == 0x7f).count();
            let quoted = text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
            controls * 5 + quoted <= text.len()
        });
        let form = match text {
            Some(text) => Form::Text(text.to_owned()),
            None => {
                let mut hex = String::with_capacity(self.0.len() * 2);
                for byte in self.0.iter() {
                    // Writing to a string cannot fail.
                    let _ = write!(hex, "{byte:02x}");
                }
                Form::Hex { hex }
            }
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        let wrong = || serde::de::Error::custom("must be text or {\"hex\": …}");
        match Form::deserialize(deserializer).map_err(|_| wrong())? {
            Form::Text(text) => Ok(Blob(Arc::from(text.into_bytes()))),
            Form::Hex { hex } => {
                let digits = hex.as_bytes();
                if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(wrong());
                }
                let value = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
                let bytes = digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1]));
                Ok(Blob(bytes.collect()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_and_take_twice_their_length_at_most() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in
            [&b""[..], b"plain", b"{\"a\": 1}", &[0; 100], &[b'"'; 100], &all, "\u{fc}ber".as_bytes()]
        {
            let blob = Blob(Arc::from(bytes));
            let json = serde_json::to_string(&blob).expect("written");
            assert!(json.len() <= bytes.len() * 2 + 10, "{json}");
            assert_eq!(serde_json::from_str::<Blob>(&json).expect("read"), blob);
        }
        for bad in ["1", "{\"hex\": \"0\"}", "{\"hex\": \"zz\"}", "[1]", "null"] {
            assert!(serde_json::from_str::<Blob>(bad).is_err(), "{bad}");
        }
    }
}

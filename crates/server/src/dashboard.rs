//! The dashboard: a few files that are part of the binary. They contain no data; the page requests it like any other client.
//!
//! No framework and no build step: it is one page, the browser has everything it needs, and nothing goes out of date.

use crate::problem::{Answer, Problem};
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// The path of the page's files.
pub(crate) const ASSETS: &str = "/assets/";

/// Nothing from outside, nothing inline, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = include_str!("../dashboard/index.html");

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, type, content.
const FILES: [(&str, &str, &str); 12] = [
    ("api.js", SCRIPT, include_str!("../dashboard/api.js")),
    ("app.js", SCRIPT, include_str!("../dashboard/app.js")),
    ("cluster.js", SCRIPT, include_str!("../dashboard/cluster.js")),
    ("dom.js", SCRIPT, include_str!("../dashboard/dom.js")),
    ("events.js", SCRIPT, include_str!("../dashboard/events.js")),
    ("job.js", SCRIPT, include_str!("../dashboard/job.js")),
    ("plot.js", SCRIPT, include_str!("../dashboard/plot.js")),
    ("stream.js", SCRIPT, include_str!("../dashboard/stream.js")),
    ("top.js", SCRIPT, include_str!("../dashboard/top.js")),
    ("work.js", SCRIPT, include_str!("../dashboard/work.js")),
    ("style.css", "text/css; charset=utf-8", include_str!("../dashboard/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("../dashboard/icon.svg")),
];

fn file(kind: &'static str, content: &'static str) -> Response {
    let headers: [(HeaderName, HeaderValue); 2] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    ];
    (headers, content).into_response()
}

/// The dashboard
#[utoipa::path(get, path = "/", tag = "page", responses((status = 200, description = "the page", body = String, content_type = "text/html")))]
pub(crate) async fn index() -> Response {
    file("text/html; charset=utf-8", HTML)
}

/// A file of the dashboard
#[utoipa::path(
    get, path = "/assets/{name}", tag = "page", params(("name" = String, Path, description = "its name")),
    responses(
        (status = 200, description = "a script, a style sheet, a picture", content(
            (String = "text/javascript"), (String = "text/css"), (String = "image/svg+xml"),
        )),
        (status = 404, description = "the page has no such file", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn asset(Path(name): Path<String>) -> Answer<Response> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    found
        .map(|(_, kind, content)| file(kind, content))
        .ok_or_else(|| Problem::not_found("no-file", "the page has no such file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page uses only files in the binary, and nothing from outside.
    #[test]
    fn every_file_the_page_names_is_part_of_the_binary() {
        let texts = FILES.iter().map(|(.., content)| *content).chain([HTML]);
        let mut named = 0;
        for text in texts {
            for part in text.split("/assets/").skip(1).chain(text.split("from \"./").skip(1)) {
                let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '.').collect();
                assert!(FILES.iter().any(|(known, ..)| *known == name), "{name}");
                named += 1;
            }
            let outside = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!outside.contains("http:") && !outside.contains("https:") && !outside.contains("//cdn"));
            assert!(!text.contains("innerHTML") && !text.contains("insertAdjacentHTML"), "texts stay texts");
        }
        assert!(named >= 6, "{named}");
    }
}

//! The explanation of a call as JSON: `explain.json?channel=ID&path=/package.Service/Method&header=name:value`.
//!
//! A GET, as the other data of the page: it changes nothing but the turn of policies that take turns.

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};
use proxyless::ClientPool;
use proxyless::inspect::ExplainRequest;

use crate::page::json;

pub(crate) async fn explain(State(clients): State<ClientPool>, RawQuery(query): RawQuery) -> Response {
    let Question { channel, request } = match Question::parse(query.as_deref().unwrap_or_default()) {
        Ok(question) => question,
        Err(problems) => return refuse(StatusCode::BAD_REQUEST, problems.join("; ")),
    };
    match clients.explain(channel, request).await {
        Some(explanation) => json(&explanation).into_response(),
        None => {
            refuse(StatusCode::NOT_FOUND, format!("there is no channel {channel}, or it does not answer"))
        }
    }
}

fn refuse(status: StatusCode, why: String) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, why).into_response()
}

#[derive(Debug)]
struct Question {
    channel: u64,
    request: ExplainRequest,
}

impl Question {
    /// Reads a query; returns all its problems.
    fn parse(query: &str) -> Result<Self, Vec<String>> {
        let (mut channel, mut path, mut headers, mut problems) = (None, None, Vec::new(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = match decode(value) {
                Some(value) => value,
                None => {
                    problems.push(format!("{name}: not percent-encoded UTF-8"));
                    continue;
                }
            };
            match name {
                "channel" => match value.parse() {
                    Ok(id) => channel = Some(id),
                    Err(_) => problems.push(format!("channel: {value:?} is not an id")),
                },
                "path" => path = Some(value),
                "header" => match header(&value) {
                    Ok(header) => headers.push(header),
                    Err(why) => problems.push(format!("header {value:?}: {why}")),
                },
                _ => problems.push(format!("{name}: unknown; channel, path and header are known")),
            }
        }
        let path = path.filter(|path| !path.is_empty());
        if path.is_none() {
            problems.push("path: missing".to_owned());
        }
        if channel.is_none() && !problems.iter().any(|problem| problem.starts_with("channel: ")) {
            problems.push("channel: missing".to_owned());
        }
        match (channel, path) {
            (Some(channel), Some(path)) if problems.is_empty() => {
                let request = ExplainRequest::new(&path);
                let request =
                    headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
                Ok(Self { channel, request })
            }
            _ => Err(problems),
        }
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("there is no colon between name and value")?;
    let name = HeaderName::try_from(name.trim()).map_err(|error| error.to_string())?;
    let value = HeaderValue::try_from(value.trim()).map_err(|error| error.to_string())?;
    Ok((name, value))
}

/// Decodes a percent-encoded value, where a plus is a space.
fn decode(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_a_channel_a_path_and_headers() {
        let question =
            Question::parse("channel=7&path=%2Fs%2Fm&header=x-user%3A+a%20b&header=x-user:c").unwrap();
        assert_eq!((question.channel, question.request.path.as_str()), (7, "/s/m"));
        let values: Vec<_> = question.request.headers.get_all("x-user").iter().collect();
        assert_eq!(values, ["a b", "c"]);
    }

    #[test]
    fn all_problems_of_a_query_are_listed() {
        let problems = |query| Question::parse(query).unwrap_err().join("; ");
        assert_eq!(problems(""), "path: missing; channel: missing");
        assert_eq!(
            problems("channel=x&path=%zz&header=y&more=1"),
            "channel: \"x\" is not an id; path: not percent-encoded UTF-8; \
             header \"y\": there is no colon between name and value; more: unknown; channel, path and header are \
             known; path: missing"
        );
    }
}

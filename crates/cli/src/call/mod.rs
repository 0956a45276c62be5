//! `proxyless call`: one RPC through the full client, to a method that is known only at run time; with `--explain`, the
//! reasons for its route and endpoint.

mod codec;
mod data;
mod descriptors;
mod exchange;
mod explain;
mod method;
mod reflection;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};
use proxyless::bootstrap::BootstrapProblem;
use proxyless::inspect::Explanation;
use proxyless::{Bootstrap, XdsChannel};
use serde_json::{Value, json};

use self::exchange::{Answer, exchange};
use self::method::MethodName;
use crate::output::{note, print};
use crate::text::{safe, safe_json};

/// The exit code of an RPC that ended with a status other than OK.
const NOT_OK: u8 = 2;

#[derive(Clone, Debug, Args)]
pub(crate) struct CallFlags {
    /// The target, such as xds:///greeter
    #[arg(value_name = "TARGET")]
    target: String,
    /// The method: package.Service/Method
    #[arg(value_name = "METHOD")]
    method: String,
    /// The request as JSON; several for a stream, one after the other; @FILE reads a file, @- standard input
    #[arg(long, short, value_name = "JSON")]
    data: Option<String>,
    /// A header of the request, such as 'x-user: 7'; can be repeated
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The time limit of the RPC, such as 500ms, 5s or 2m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    deadline: Duration,
    /// The bootstrap file; by default that of GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG
    #[arg(long, value_name = "FILE")]
    bootstrap: Option<PathBuf>,
    /// Take the types from this file (protoc --include_imports --descriptor_set_out) instead of server reflection
    #[arg(long, value_name = "FILE", conflicts_with = "proto")]
    descriptor_set: Option<PathBuf>,
    /// Take the types from this .proto file instead of server reflection; can be repeated
    #[arg(long, value_name = "FILE")]
    proto: Vec<PathBuf>,
    /// A folder for the imports of --proto; by default the current one
    #[arg(long = "import", short = 'I', value_name = "DIR", requires = "proto")]
    imports: Vec<PathBuf>,
    /// Print one JSON document: responses, status, backend, and the explanation if asked for
    #[arg(long)]
    json: bool,
    /// Say which route, cluster, priority, locality and endpoint the RPC gets, and why not the others
    #[arg(long)]
    explain: bool,
    /// Explain only, and send no RPC
    #[arg(long, requires = "explain")]
    dry_run: bool,
}

/// Runs the call. The exit code is 0 for status OK, 2 for any other status, and 1 if nothing could be sent.
pub(crate) async fn run(flags: CallFlags) -> Result<ExitCode, Box<dyn Error>> {
    let name = MethodName::parse(&flags.method)?;
    let headers = parse_headers(&flags.header)?;
    let channel = channel(&flags)?;
    if flags.dry_run {
        let explanation = explain::settled(&channel, &name, &headers, flags.deadline).await?;
        print(&match flags.json {
            true => pretty(&json!({ "explanation": explanation }))?,
            false => lines(&explanation),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    // All input is checked before anything is sent.
    let method = descriptors::method(&flags, &name, &channel).await?;
    let requests = data::requests(flags.data.as_deref(), &method)?;
    let explanation = match flags.explain {
        true => Some(explain::settled(&channel, &name, &headers, flags.deadline).await?),
        false => None,
    };
    if let (Some(explanation), false) = (&explanation, flags.json) {
        note(&lines(explanation));
    }
    let shown = if flags.json { Shown::AtTheEnd } else { Shown::AtOnce };
    let answer = exchange(&channel, &method, requests, headers, flags.deadline, |response| match shown {
        Shown::AtOnce => Ok(print(&pretty(response)?)?.or_end()?),
        Shown::AtTheEnd => Ok(()),
    })
    .await?;
    report(&answer, explanation.as_ref(), shown)?;
    Ok(if answer.status.is_none() { ExitCode::SUCCESS } else { ExitCode::from(NOT_OK) })
}

/// When responses are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    AtOnce,
    AtTheEnd,
}

fn channel(flags: &CallFlags) -> Result<XdsChannel, Box<dyn Error>> {
    let mut builder = XdsChannel::builder(&flags.target);
    if let Some(path) = &flags.bootstrap {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("bootstrap file {shown}: {error}"))?;
        let parsed = Bootstrap::from_json(&text).map_err(|error| {
            let of = |one: &BootstrapProblem| match one.path.as_str() {
                "" => one.reason.clone(),
                path => format!("{path}: {}", one.reason),
            };
            let problems: Vec<String> = error.problems().iter().map(of).collect();
            format!("bootstrap file {shown}: {}", problems.join("; "))
        })?;
        builder = builder.bootstrap(parsed);
    }
    builder.build().map_err(|error| match error.to_string() {
        text if text.contains("none given") => format!("{text}, or pass --bootstrap FILE").into(),
        _ => error.into(),
    })
}

/// Prints the end of the call.
fn report(answer: &Answer, explanation: Option<&Explanation>, shown: Shown) -> Result<(), Box<dyn Error>> {
    let (code, message) = match &answer.status {
        None => ("OK", ""),
        Some(status) => (exchange::code_name(status.code()), status.message()),
    };
    if shown == Shown::AtTheEnd {
        let mut document = json!({
            "responses": answer.responses,
            "status": { "code": code, "message": message },
            "peer": answer.peer.map(|peer| peer.to_string()),
            "milliseconds": answer.time.as_millis() as u64,
        });
        if let (Some(explanation), Some(fields)) = (explanation, document.as_object_mut()) {
            fields.insert("explanation".to_owned(), serde_json::to_value(explanation)?);
        }
        print(&pretty(&document)?)?;
        return Ok(());
    }
    let peer = answer.peer.map(|peer| format!(" from {peer}")).unwrap_or_default();
    let time = answer.time.as_millis();
    let separator = if message.is_empty() { "" } else { ": " };
    note(&format!("{code}{peer} after {time} ms{separator}{}\n", safe(message)));
    Ok(())
}

/// The lines of an explanation, safe for a terminal.
fn lines(explanation: &Explanation) -> String {
    explanation.to_string().lines().map(|line| format!("{}\n", safe(line))).collect()
}

fn pretty(value: &Value) -> Result<String, Box<dyn Error>> {
    Ok(safe_json(&serde_json::to_string_pretty(value)?).into_owned() + "\n")
}

fn parse_headers(list: &[String]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let mut problems = Vec::new();
    for text in list {
        let parsed = text
            .split_once(':')
            .ok_or("there is no colon between name and value".to_owned())
            .and_then(|(name, value)| {
                let name = HeaderName::try_from(name.trim()).map_err(|error| format!("name: {error}"))?;
                let value = HeaderValue::try_from(value.trim()).map_err(|error| format!("value: {error}"))?;
                Ok((name, value))
            });
        match parsed {
            Ok((name, value)) => drop(headers.append(name, value)),
            Err(why) => problems.push(format!("header {text:?}: {why}")),
        }
    }
    if problems.is_empty() { Ok(headers) } else { Err(problems.join("\n")) }
}

/// A duration with a unit: ms, s, m or h.
fn parse_time(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = text.strip_suffix(unit).unwrap_or(text);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a number with the unit ms, s, m or h is needed, such as 500ms or 5s".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("it must be greater than zero, and not out of range".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        for bad in ["5", "s", "0s", "-1s", "1d", "1e999h", ""] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_bad_headers_are_named() {
        let headers = parse_headers(&["X-User: 7".to_owned(), "x-user:8".to_owned()]).unwrap();
        assert_eq!(headers.get_all("x-user").iter().collect::<Vec<_>>(), ["7", "8"]);
        let error = parse_headers(&["nothing".to_owned(), "a b: c".to_owned()]).unwrap_err();
        assert_eq!(
            error,
            "header \"nothing\": there is no colon between name and value\n\
             header \"a b: c\": name: invalid HTTP header name"
        );
    }
}

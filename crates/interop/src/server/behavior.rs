//! The `rpc-behavior` header: a request's instructions to misbehave.

use std::time::Duration;

use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// An action before a request is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behavior {
    /// Wait, then continue with the next behavior.
    Sleep(Duration),
    /// Keep the request open without an answer.
    KeepOpen,
    /// Fail the request with this code.
    Fail(Code),
    /// Process the request now if it is this attempt, counted from 0.
    SucceedOnAttempt(u32),
}

/// The behaviors that a request specifies for the server of this name, in order.
pub(super) fn requested(metadata: &MetadataMap, hostname: &str) -> Result<Vec<Behavior>, Status> {
    let mut behaviors = Vec::new();
    for value in metadata.get_all("rpc-behavior") {
        let value =
            value.to_str().map_err(|_| Status::invalid_argument("the rpc-behavior header is not text"))?;
        for option in value.split(',').map(str::trim) {
            let option = match option.strip_prefix("hostname=").and_then(|rest| rest.split_once(' ')) {
                Some((wanted, _)) if wanted != hostname => continue,
                Some((_, rest)) => rest.trim(),
                None => option,
            };
            behaviors.push(parse(option)?);
        }
    }
    Ok(behaviors)
}

fn parse(option: &str) -> Result<Behavior, Status> {
    let bad = || Status::invalid_argument(format!("unknown rpc-behavior {option:?}"));
    let number = |text: &str| text.parse::<u32>().map_err(|_| bad());
    if option == "keep-open" {
        Ok(Behavior::KeepOpen)
    } else if let Some(seconds) = option.strip_prefix("sleep-") {
        Ok(Behavior::Sleep(Duration::from_secs(number(seconds)?.into())))
    } else if let Some(code) = option.strip_prefix("error-code-") {
        let code = i32::try_from(number(code)?).map_err(|_| bad())?;
        Ok(Behavior::Fail(Code::from_i32(code)))
    } else if let Some(attempt) = option.strip_prefix("succeed-on-retry-attempt-") {
        Ok(Behavior::SucceedOnAttempt(number(attempt)?))
    } else {
        Err(bad())
    }
}

/// Applies the behaviors of the request; returns when it is to be processed.
pub(super) async fn apply(metadata: &MetadataMap, hostname: &str) -> Result<(), Status> {
    for behavior in requested(metadata, hostname)? {
        match behavior {
            Behavior::Sleep(duration) => tokio::time::sleep(duration).await,
            Behavior::KeepOpen => std::future::pending().await,
            Behavior::Fail(Code::Ok) => return Ok(()),
            Behavior::Fail(code) => {
                return Err(Status::new(code, format!("{hostname} was asked to fail")));
            }
            Behavior::SucceedOnAttempt(attempt) if attempt == earlier_attempts(metadata) => return Ok(()),
            Behavior::SucceedOnAttempt(_) => {}
        }
    }
    Ok(())
}

fn earlier_attempts(metadata: &MetadataMap) -> u32 {
    let value = metadata.get("grpc-previous-rpc-attempts").and_then(|value| value.to_str().ok());
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

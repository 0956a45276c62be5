//! The explanation of a call on a channel that has just been created.

use std::pin::pin;
use std::time::Duration;

use http::HeaderMap;
use proxyless::XdsChannel;
use proxyless::inspect::{ExplainRequest, Explanation, Outcome};
use tokio::time::{Instant, sleep};

use super::method::MethodName;

/// The pause between two looks at a channel that connects.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Connects the channel, and explains the call once its outcome is known, or when the time is over.
pub(super) async fn settled(
    channel: &XdsChannel,
    method: &MethodName,
    headers: &HeaderMap,
    limit: Duration,
) -> Result<Explanation, String> {
    let end = Instant::now() + limit;
    let request = ExplainRequest::new(&method.path()).with_headers(headers.clone());
    // Makes the channel connect, and keeps it from going IDLE.
    let mut connecting = pin!(channel.ready());
    let mut connected = false;
    loop {
        let explained = channel.explain(request.clone()).await;
        let explanation = explained.ok_or("the channel has ended, so that there is nothing to explain")?;
        // A draw that drops or fails is an outcome too, but a mesh that is still connecting may not have failed yet.
        if !matches!(explanation.outcome, Outcome::Waits { .. }) || Instant::now() >= end {
            return Ok(explanation);
        }
        tokio::select! {
            result = &mut connecting, if !connected => {
                result.map_err(|status| status.message().to_owned())?;
                connected = true;
            }
            () = sleep(LOOK_EVERY) => {}
        }
    }
}

//! Private parts that fuzz targets call. Not part of the API.

use crate::GoAway;
use crate::frame_parser::{Event, FrameParser};
use crate::sent_frames::SentFrames;
use crate::tunnel::response::Head;

/// The results of the frame tap for the bytes of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// SETTINGS, with the limit of streams and the window, where they are given.
    Settings(Option<u32>, Option<u32>),
    /// An acknowledgement of our SETTINGS.
    SettingsAck,
    /// GOAWAY.
    GoAway(GoAway),
    /// This is not HTTP/2.
    NotHttp2,
    /// Too many interim responses; nothing is read after them.
    TooManyInterim,
}

/// The results of the tap for bytes from a server that arrive in these parts.
pub fn received<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Received> {
    let mut parser = FrameParser::default();
    let mut found = Vec::new();
    for part in parts {
        parser.push(part, |event| {
            found.push(match event {
                Event::Settings(settings) => {
                    Received::Settings(settings.max_concurrent_streams, settings.initial_window_size)
                }
                Event::SettingsAck => Received::SettingsAck,
                Event::GoAway(go_away) => Received::GoAway(go_away),
                Event::NotHttp2 { .. } => Received::NotHttp2,
                Event::TooManyInterim => Received::TooManyInterim,
            });
        });
    }
    found
}

/// The result of the tap for bytes from this side that leave in these parts: the greatest stream that has begun, and
/// the streams that were reset.
pub fn sent<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> (Option<u32>, Vec<u32>) {
    let mut frames = SentFrames::default();
    let (mut begun, mut reset) = (None, Vec::new());
    for part in parts {
        begun = begun.max(frames.push(part, |stream| reset.push(stream)));
    }
    (begun, reset)
}

/// The status and length of the head of a proxy's response to CONNECT; `None` while it is incomplete.
pub fn connect_response(received: &[u8]) -> Result<Option<(u16, usize)>, String> {
    Head::check(received)?;
    Ok(Head::read(received)?.map(|head| (head.status, head.length)))
}

//! Channels with their policy trees, as text.

use proxyless::inspect::{CallsView, ChannelView, Line};

use super::table::Style;
use crate::text::{safe, wrap};

/// The minimum width of wrapped text, however deep it is indented.
const MIN_TEXT: usize = 24;

/// The channels, in lines of at most this width.
pub(super) fn to_text(channels: &[ChannelView], style: Style, width: Option<usize>) -> String {
    if channels.is_empty() {
        return "no channels\n".to_owned();
    }
    channels.iter().map(|channel| one(channel, style, width)).collect::<Vec<_>>().join("\n")
}

fn one(channel: &ChannelView, style: Style, width: Option<usize>) -> String {
    let CallsView { succeeded, failed, .. } = channel.calls;
    let in_flight = channel.calls.in_flight();
    let mut text = format!(
        "{} {} calls: {succeeded} succeeded, {failed} failed, {in_flight} in flight\n",
        style.bold(&safe(&channel.target)),
        style.state(&channel.state.to_string()),
    );
    for Line { branch, hang, text: line, .. } in channel.tree.lines() {
        let line = safe(&line);
        let Some(width) = width else {
            text += &format!("{branch}{}\n", style.states(&line));
            continue;
        };
        let room = |before: &str| width.saturating_sub(before.chars().count()).max(MIN_TEXT);
        for (at, part) in wrap(&line, room(&branch), room(&hang)).iter().enumerate() {
            let before = if at == 0 { &branch } else { &hang };
            text += &format!("{before}{}\n", style.states(part));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn channel(error: &str) -> ChannelView {
        let channel = json!({
            "id": 1,
            "target": "xds:///\u{1b}[2Jx",
            "state": "READY",
            "created": 0.0,
            "calls": { "started": 3, "succeeded": 1, "failed": 1 },
            "tree": { "listener": "x", "root": { "policy": "cds_experimental", "error": error } },
            "connections": [],
            "events": [],
            "events_total": 0,
        });
        serde_json::from_value(channel).unwrap()
    }

    #[test]
    fn long_lines_hang_below_their_beginning_and_nothing_reaches_the_terminal_raw() {
        let channels = [channel("Cluster c: \u{1b}]0;x\u{7} does not exist, and so on")];
        let lines = [
            r"xds:///\u{1b}[2Jx READY calls: 1 succeeded, 1 failed, 1 in flight",
            "listener x",
            "cds IDLE",
            r"└· error: Cluster c:",
            r"     \u{1b}]0;x\u{7} does not",
            "     exist, and so on",
        ];
        let text = to_text(&channels, Style::Plain, Some(32));
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        assert_eq!(to_text(&channels, Style::Plain, None).lines().count(), 4);
        assert_eq!(to_text(&[], Style::Plain, None), "no channels\n");
    }
}

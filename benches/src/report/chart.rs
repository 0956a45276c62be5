//! The picture: a few bar charts side by side, as SVG.

use std::fmt::Write;

use super::table::number;
use crate::digest::Digest;
use crate::field::Contestant;

struct Panel {
    title: &'static str,
    measure: &'static str,
    note: &'static str,
}

const PANELS: [Panel; 6] = [
    Panel {
        title: "Client CPU per RPC (us)",
        measure: "calls/128/cpu",
        note: "128 concurrent; less is better",
    },
    Panel { title: "Requests per second", measure: "calls/128/rps", note: "128 concurrent; more is better" },
    Panel { title: "p99 latency (us)", measure: "calls/016/p99", note: "16 concurrent; less is better" },
    Panel {
        title: "CPU per EDS update (ms)",
        measure: "update/idle/010000/one",
        note: "10,000 endpoints, one changed",
    },
    Panel { title: "Memory per endpoint (bytes)", measure: "memory/endpoint", note: "not connected" },
    Panel {
        title: "First RPC (ms)",
        measure: "startup/plain/channel",
        note: "from the creation of the channel",
    },
];

const COLUMNS: usize = 3;
const WIDTH: usize = 340;
const BAR: usize = 18;
const LABEL: usize = 118;

/// The picture of these results.
pub(crate) fn chart(digest: &Digest) -> String {
    let panels: Vec<_> = PANELS.iter().map(|panel| (panel, bars(digest, panel.measure))).collect();
    let panels: Vec<_> = panels.into_iter().filter(|(_, bars)| !bars.is_empty()).collect();
    let most = panels.iter().map(|(_, bars)| bars.len()).max().unwrap_or(0);
    let height = 62 + most * BAR;
    let rows = panels.len().div_ceil(COLUMNS);
    let (w, h) = (WIDTH * COLUMNS.min(panels.len().max(1)), height * rows);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{w}\" height=\"{h}\" fill=\"#ffffff\"/>\n"
    );
    for (at, (panel, bars)) in panels.iter().enumerate() {
        draw(panel, bars, (at % COLUMNS) * WIDTH, (at / COLUMNS) * height, &mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

fn bars(digest: &Digest, measure: &str) -> Vec<(Contestant, f64)> {
    let bars = Contestant::ALL.into_iter();
    bars.filter_map(|who| Some((who, digest.value(measure, who)?.median?))).collect()
}

fn draw(panel: &Panel, bars: &[(Contestant, f64)], x: usize, y: usize, svg: &mut String) {
    let longest = bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let room = (WIDTH - LABEL - 70) as f64;
    let (title_x, title_y, note_y) = (x + 10, y + 22, y + 37);
    let _ = writeln!(
        svg,
        "<text x=\"{title_x}\" y=\"{title_y}\" font-size=\"14\" font-weight=\"bold\">{}</text>",
        panel.title
    );
    let _ = writeln!(svg, "<text x=\"{title_x}\" y=\"{note_y}\" fill=\"#666666\">{}</text>", panel.note);
    for (at, (who, value)) in bars.iter().enumerate() {
        let top = y + 46 + at * BAR;
        let length = (value / longest * room).max(1.0);
        let colour = if *who == Contestant::Proxyless { "#d9480f" } else { "#8da2bb" };
        let (label_x, bar_x, text_y) = (x + LABEL - 6, x + LABEL, top + 11);
        let _ = writeln!(svg, "<text x=\"{label_x}\" y=\"{text_y}\" text-anchor=\"end\">{who}</text>");
        let _ = writeln!(
            svg,
            "<rect x=\"{bar_x}\" y=\"{top}\" width=\"{length:.1}\" height=\"14\" fill=\"{colour}\"/>"
        );
        let after = bar_x as f64 + length + 5.0;
        let _ = writeln!(svg, "<text x=\"{after:.1}\" y=\"{text_y}\">{}</text>", number(*value));
    }
}

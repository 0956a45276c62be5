//! The output: a human-readable line per case, or a JSON line per number.

use serde_json::json;

/// The output format.
pub(crate) struct Report {
    json: bool,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// The numbers of one case: name, unit and value of each. The measure of a number is the case, a slash and the
    /// name.
    pub(crate) fn case(&mut self, case: &str, numbers: &[(&str, &str, f64)]) {
        if self.json {
            for (name, unit, value) in numbers {
                println!("{}", json!({"measure": format!("{case}/{name}"), "unit": unit, "value": value}));
            }
            return;
        }
        let mut line = format!("{case:<36}");
        for (name, unit, value) in numbers {
            let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
            line.push_str(&format!("  {name} {}{unit}", readable(*value)));
        }
        println!("{line}");
    }
}

fn readable(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 || large == large.trunc() => format!("{value:.0}"),
        large if large >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

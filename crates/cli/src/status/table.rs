//! The resources as a table.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus;
use envoy_types::pb::envoy::service::status::v3::ClientConfig;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::google::protobuf::Timestamp;

use crate::text::safe;

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Colours,
    Plain,
}

impl Style {
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// A connectivity state or a resource's status, in the colour of its severity.
    pub(crate) fn state(self, state: &str) -> String {
        let colour = match state.trim_end() {
            "READY" | "ACKED" | "ACK" => "32",
            "TRANSIENT_FAILURE" | "NACKED" | "NACK" | "DOES_NOT_EXIST" | "RECEIVED_ERROR" | "TIMEOUT" => "31",
            _ => "33",
        };
        self.paint(colour, state)
    }

    /// A line with all its connectivity states, and the warnings about certificates, in colour.
    pub(crate) fn states(self, text: &str) -> String {
        if self == Self::Plain {
            return text.to_owned();
        }
        let word = |word: &str| match word {
            "IDLE" | "CONNECTING" | "READY" | "TRANSIENT_FAILURE" => self.state(word),
            "EXPIRING" => self.paint("33", word),
            "EXPIRED" => self.paint("31", word),
            other => other.to_owned(),
        };
        text.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn paint(self, colour: &str, text: &str) -> String {
        match self {
            Self::Colours => format!("\x1b[{colour}m{text}\x1b[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

/// All clients, to be drawn.
pub(crate) struct Table<'a> {
    clients: &'a [ClientConfig],
    now: SystemTime,
}

impl<'a> Table<'a> {
    pub(crate) fn new(clients: &'a [ClientConfig], now: SystemTime) -> Self {
        Self { clients, now }
    }

    pub(crate) fn to_text(&self, style: Style) -> String {
        if self.clients.is_empty() {
            return "no xDS client: no channel has been used yet\n".to_owned();
        }
        let mut text = String::new();
        for (at, client) in self.clients.iter().enumerate() {
            if at > 0 {
                text.push('\n');
            }
            self.client(client, style, &mut text);
        }
        text
    }

    fn client(&self, client: &ClientConfig, style: Style, text: &mut String) {
        let node = client.node.as_ref().map_or("?", |node| node.id.as_str());
        let scope = if client.client_scope.is_empty() { "shared" } else { client.client_scope.as_str() };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} node {}, {}", style.bold("xDS client"), safe(node), safe(scope));
        let header = ["TYPE", "NAME", "STATUS", "AGE", "VERSION"].map(str::to_owned);
        let rows: Vec<[String; 5]> = client.generic_xds_configs.iter().map(|r| self.row(r)).collect();
        let widths: [usize; 5] = std::array::from_fn(|column| {
            rows.iter().chain([&header]).map(|row| row[column].chars().count()).max().unwrap_or(0)
        });
        let line = |row: &[String; 5], paint: bool| {
            let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
                let padded = format!("{cell:<width$}");
                if paint && column == 2 { style.state(&padded) } else { padded }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let _ = writeln!(text, "{}", line(&header, false));
        for (row, resource) in rows.iter().zip(&client.generic_xds_configs) {
            let _ = writeln!(text, "{}", line(row, true));
            if let Some(error) = &resource.error_state {
                let version = match error.version_info.as_str() {
                    "" => String::new(),
                    version => format!("version {version}, "),
                };
                let age = self.age(error.last_update_attempt.as_ref());
                let _ = writeln!(
                    text,
                    "    {}",
                    style.paint("31", &format!("{}{age} ago: {}", safe(&version), safe(&error.details)))
                );
            }
        }
    }

    fn row(&self, resource: &GenericXdsConfig) -> [String; 5] {
        let kind = resource.type_url.rsplit('.').next().unwrap_or_default();
        let status = ClientResourceStatus::try_from(resource.client_status)
            .map_or_else(|_| resource.client_status.to_string(), |status| status.as_str_name().to_owned());
        let age = self.age(resource.last_updated.as_ref());
        [kind, &resource.name, &status, &age, &resource.version_info].map(|cell| safe(cell).into_owned())
    }

    fn age(&self, time: Option<&Timestamp>) -> String {
        let Some(time) = time else { return "-".to_owned() };
        let since = Duration::new(u64::try_from(time.seconds).unwrap_or(0), time.nanos.unsigned_abs());
        // A time that the clock cannot represent is in the future.
        let time = UNIX_EPOCH.checked_add(since).unwrap_or(self.now);
        age(self.now.duration_since(time).unwrap_or_default().as_secs())
    }
}

/// A number of seconds in a suitable unit.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::admin::v3::UpdateFailureState;

    use super::*;

    fn client() -> ClientConfig {
        let time = Some(Timestamp { seconds: 100, nanos: 0 });
        let good = GenericXdsConfig {
            type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".into(),
            name: "a-rather-long-name".into(),
            client_status: ClientResourceStatus::Acked.into(),
            version_info: "7".into(),
            last_updated: time,
            ..Default::default()
        };
        let error = UpdateFailureState {
            details: "bad".into(),
            version_info: "8".into(),
            last_update_attempt: time,
            ..Default::default()
        };
        let bad = GenericXdsConfig {
            name: "b".into(),
            client_status: ClientResourceStatus::Nacked.into(),
            error_state: Some(error),
            last_updated: None,
            version_info: String::new(),
            ..good.clone()
        };
        ClientConfig { generic_xds_configs: vec![good, bad], ..Default::default() }
    }

    #[test]
    fn columns_line_up_and_errors_follow_their_resource() {
        let clients = [client()];
        let now = UNIX_EPOCH + Duration::from_secs(300);
        let lines = [
            "xDS client node ?, shared",
            "TYPE     NAME                STATUS  AGE    VERSION",
            "Cluster  a-rather-long-name  ACKED   3 min  7",
            "Cluster  b                   NACKED  -",
            "    version 8, 3 min ago: bad",
        ];
        let text = Table::new(&clients, now).to_text(Style::Plain);
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn colours_do_not_move_columns() {
        let clients = [client()];
        let text = Table::new(&clients, UNIX_EPOCH).to_text(Style::Colours);
        assert!(text.contains("\x1b[32mACKED \x1b[0m"), "{text}");
        assert!(text.contains("\x1b[31mNACKED\x1b[0m"), "{text}");
        assert_eq!(Style::Colours.states("a READY"), "a \x1b[32mREADY\x1b[0m");
        assert_eq!(Style::Colours.states("EXPIRED the"), "\x1b[31mEXPIRED\x1b[0m the");
    }

    #[test]
    fn a_time_that_no_clock_can_hold_is_now() {
        let mut client = client();
        for resource in &mut client.generic_xds_configs {
            resource.last_updated = Some(Timestamp { seconds: i64::MAX, nanos: i32::MIN });
        }
        let text = Table::new(&[client], UNIX_EPOCH).to_text(Style::Plain);
        assert!(text.contains(" 0 s "), "{text}");
    }

    #[test]
    fn what_a_control_plane_sends_cannot_steer_the_terminal() {
        let mut client = client();
        let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\n";
        for resource in &mut client.generic_xds_configs {
            resource.name = evil.into();
            resource.version_info = evil.into();
            resource.type_url = format!("x.{evil}");
            if let Some(error) = &mut resource.error_state {
                (error.details, error.version_info) = (evil.into(), evil.into());
            }
        }
        client.client_scope = evil.into();
        let text = Table::new(&[client], UNIX_EPOCH).to_text(Style::Plain);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}

//! What `serve` prints while it runs: reloads, answers of clients, loads; or a live list of the clients.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;

use proxyless_control_plane::{Changes, ClientView, Event, Plane, TypeView, short_type};

use super::{count, describe};
use crate::output::{Printed, print};
use crate::status::table::Style;
use crate::text::safe;

/// The number of lines below a live list.
const LOG: usize = 12;

pub(super) struct Feed {
    look: Look,
    log: VecDeque<String>,
    muted: bool,
    last_list: String,
}

/// What is printed, and how.
pub(super) struct Look {
    pub(super) banner: String,
    pub(super) style: Style,
    /// With a list of the clients.
    pub(super) list: bool,
    /// With load reports.
    pub(super) loads: bool,
    /// Redraws in place instead of printing on.
    pub(super) in_place: bool,
}

impl Feed {
    pub(super) fn new(look: Look) -> Self {
        Self { look, log: VecDeque::new(), muted: false, last_list: String::new() }
    }

    pub(super) fn start(&mut self, plane: &Plane) -> io::Result<Printed> {
        let banner = self.look.banner.clone();
        if self.look.in_place { self.show(&[], plane) } else { print(&banner) }
    }

    /// Prints nothing from now on.
    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    pub(super) fn reloaded(
        &mut self,
        changes: &Changes,
        advice: &[String],
        plane: &Plane,
    ) -> io::Result<Printed> {
        let mut lines = vec![match changes.0.is_empty() {
            true => "reloaded: nothing changed".to_owned(),
            false => self.look.style.bold("reloaded"),
        }];
        lines.extend(describe(changes).iter().chain(advice).map(|line| format!("  {}", safe(line))));
        self.show(&lines, plane)
    }

    pub(super) fn broken(&mut self, problems: &[String], plane: &Plane) -> io::Result<Printed> {
        let errors = count(problems.len(), "error");
        let not = self.look.style.state("NACK").replace("NACK", "not reloaded");
        let mut lines = vec![format!("{not}: {errors}; the state before stays")];
        lines.extend(problems.iter().map(|problem| format!("  {}", safe(problem))));
        self.show(&lines, plane)
    }

    /// The TLS files have changed.
    pub(super) fn certificates(&mut self, result: Result<(), String>, plane: &Plane) -> io::Result<Printed> {
        let line = match result {
            Ok(()) => format!("{}: for new connections", self.look.style.bold("certificates reloaded")),
            Err(why) => {
                let not = self.look.style.state("NACK").replace("NACK", "certificates not reloaded");
                format!("{not}: {}; the previous ones stay in use", safe(&why))
            }
        };
        self.show(&[line], plane)
    }

    pub(super) fn missed(&mut self, missed: u64, plane: &Plane) -> io::Result<Printed> {
        self.show(&[format!("{missed} events were too many to print")], plane)
    }

    pub(super) fn event(&mut self, event: &Event, plane: &Plane) -> io::Result<Printed> {
        let line = match event {
            Event::Connected(client) => format!("connected: {}", who(client)),
            Event::Disconnected(client) => format!("disconnected: {}", who(client)),
            Event::Acked { node, type_url, version } => {
                let ack = self.look.style.state("ACK");
                format!("{ack}  {}: {} version {}", safe(node), safe(short_type(type_url)), safe(version))
            }
            Event::Nacked { node, type_url, version, error } => {
                let (nack, kind) = (self.look.style.state("NACK"), short_type(type_url));
                format!("{nack} {}: {} version {}: {}", safe(node), safe(kind), safe(version), safe(error))
            }
            Event::Load { node, cluster, report } if self.look.loads => format!(
                "load {}: {}: issued {}, succeeded {}, failed {}, in progress {}, dropped {}",
                safe(node),
                safe(cluster),
                report.issued,
                report.succeeded,
                report.failed,
                report.in_progress,
                report.dropped
            ),
            _ => return Ok(Printed::Yes),
        };
        self.show(&[line], plane)
    }

    fn show(&mut self, lines: &[String], plane: &Plane) -> io::Result<Printed> {
        if self.muted {
            return Ok(Printed::Yes);
        }
        if !self.look.in_place {
            let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let list = if self.look.list { self.clients(&plane.clients()) } else { String::new() };
            if list != self.last_list {
                text += &list;
                self.last_list = list;
            }
            return print(&text);
        }
        self.log.extend(lines.iter().cloned());
        while self.log.len() > LOG {
            self.log.pop_front();
        }
        let log: String = self.log.iter().map(|line| format!("{line}\n")).collect();
        print(&format!("\x1b[H\x1b[J{}\n{}\n{log}", self.look.banner, self.clients(&plane.clients())))
    }

    /// The clients, with a line per type.
    fn clients(&self, clients: &[ClientView]) -> String {
        let mut text = format!("{}\n", self.look.style.bold(&count(clients.len(), "client")));
        for client in clients {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {}", who(client));
            for (type_url, view) in &client.types {
                let _ = writeln!(text, "    {}", self.of_type(type_url, view));
            }
        }
        text
    }

    fn of_type(&self, type_url: &str, view: &TypeView) -> String {
        let kind = short_type(type_url);
        let names = if view.wildcard { "*".to_owned() } else { view.names.join(" ") };
        let state = match (&view.version, &view.error) {
            (None, _) => self.look.style.state("no such resource"),
            (Some(version), Some(error)) => {
                format!("{} version {}: {}", self.look.style.state("NACK"), safe(version), safe(error))
            }
            (Some(version), None) if view.is_pending => format!("sent version {}", safe(version)),
            (Some(version), None) => format!("{} version {}", self.look.style.state("ACK"), safe(version)),
        };
        format!("{} {}: {state}", safe(kind), safe(&names))
    }
}

/// The client: node, address, implementation.
fn who(client: &ClientView) -> String {
    let peer = client.peer.map_or_else(String::new, |peer| format!(" from {peer}"));
    let agent = match client.user_agent().as_str() {
        "" => String::new(),
        agent => format!(", {agent}"),
    };
    let protocol = if client.is_delta { ", incremental" } else { "" };
    safe(&format!("{}{peer}{agent}{protocol}", client.node_id())).into_owned()
}

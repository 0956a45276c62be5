//! `proxyless status`: the state of a running client, read from its admin port.

mod history;
pub(crate) mod port;
pub(crate) mod table;
mod tree;

use std::error::Error;
use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use proxyless::inspect::ProcessView;
use proxyless_control_plane::Messages;
use serde_json::{Value, json};

use port::Port;
use table::{Style, Table};

use crate::output::{Printed, note, print};
use crate::text::{safe, safe_json, terminal_width};

/// The refresh interval of `--watch`.
const REFRESH: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Args)]
pub(crate) struct StatusFlags {
    /// The admin port, such as 127.0.0.1:19000
    #[arg(value_name = "ADDR")]
    address: String,
    /// Refresh every second, until interrupted; with the last minutes of each cluster as sparklines
    #[arg(long)]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show routes, policies and endpoints instead of resources
    #[arg(long, conflicts_with = "resource")]
    tree: bool,
    /// Show the content of the resources of this name, with every field
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
}

pub(crate) async fn run(flags: StatusFlags) -> Result<ExitCode, Box<dyn Error>> {
    let port = Port::new(&flags.address)?;
    let terminal = stdout().is_terminal();
    let style =
        if terminal && std::env::var_os("NO_COLOR").is_none() { Style::Colours } else { Style::Plain };
    let view = View { flags: &flags, port, style };
    if !flags.watch {
        print(&view.text().await?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut looks = 0u64;
    loop {
        looks += 1;
        let before = match terminal {
            true => "\x1b[H\x1b[J".to_owned(),
            // Readers of JSON find the next document by themselves.
            false if flags.json || looks == 1 => String::new(),
            false => format!("{}\n", "-".repeat(80)),
        };
        let printed = match view.text().await {
            Ok(text) => print(&format!("{before}{text}"))?,
            // A port that is gone may come back.
            Err(error) if terminal => print(&format!("{before}{}\n", safe(&error.to_string())))?,
            Err(error) => {
                note(&format!("proxyless: {}\n", safe(&error.to_string())));
                Printed::Yes
            }
        };
        if printed == Printed::NobodyReads {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            () = tokio::time::sleep(REFRESH) => {}
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
    }
}

struct View<'a> {
    flags: &'a StatusFlags,
    port: Port,
    style: Style,
}

impl View<'_> {
    async fn text(&self) -> Result<String, Box<dyn Error>> {
        match &self.flags.resource {
            Some(name) => self.resource(name).await,
            None if self.flags.tree => self.tree().await,
            None => self.resources().await,
        }
    }

    async fn tree(&self) -> Result<String, Box<dyn Error>> {
        let channels = self.port.channels().await?;
        if self.flags.json {
            return pretty(&serde_json::to_value(channels)?);
        }
        Ok(self.head().await + &tree::to_text(&channels, self.style, terminal_width()))
    }

    /// The process, and while it is watched the last minutes.
    async fn head(&self) -> String {
        let process = self.process().await;
        if !self.flags.watch {
            return process;
        }
        let history = self.port.history().await;
        process + &history.map_or_else(String::new, |it| history::to_text(&it, self.style, terminal_width()))
    }

    /// A line about the process, if it uses proxyless.
    async fn process(&self) -> String {
        let Some(ProcessView { name, pid, version, uptime, .. }) = self.port.process().await else {
            return String::new();
        };
        let uptime = table::age(uptime.as_secs());
        format!("{} pid {pid}, proxyless {}, up {uptime}\n\n", self.style.bold(&safe(&name)), safe(&version))
    }

    async fn resources(&self) -> Result<String, Box<dyn Error>> {
        let contents = if self.flags.json { port::Contents::Shown } else { port::Contents::Left };
        let clients = self.port.clients(contents).await?;
        if !self.flags.json {
            return Ok(self.head().await + &Table::new(&clients, SystemTime::now()).to_text(self.style));
        }
        let messages = Messages::new()?;
        let clients: Vec<Value> =
            clients.iter().map(|client| messages.json(client)).collect::<Result<_, _>>()?;
        pretty(&json!(clients))
    }

    async fn resource(&self, name: &str) -> Result<String, Box<dyn Error>> {
        let clients = self.port.clients(port::Contents::Shown).await?;
        let messages = Messages::new()?;
        let resources = clients.iter().flat_map(|client| &client.generic_xds_configs);
        let found: Vec<Value> =
            resources.filter(|r| r.name == name).map(|r| messages.json(r)).collect::<Result<_, _>>()?;
        match &found[..] {
            [] => Err(format!("the client has no resource named {name:?}").into()),
            [one] => pretty(one),
            _ => pretty(&json!(found)),
        }
    }
}

fn pretty(value: &Value) -> Result<String, Box<dyn Error>> {
    Ok(safe_json(&serde_json::to_string_pretty(value)?).into_owned() + "\n")
}

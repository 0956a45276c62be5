//! `proxyless status`: what a running client knows and does, read from its admin port.

mod message;
mod port;
mod table;

use std::error::Error;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Value, json};

use message::Messages;
use port::Port;
use table::{Style, Table};

/// How often `--watch` looks.
const REFRESH: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Args)]
pub(crate) struct StatusFlags {
    /// The admin port, such as 127.0.0.1:19000
    #[arg(value_name = "ADDR")]
    address: String,
    /// Look again every second, until interrupted
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
        return print(&view.text().await?);
    }
    loop {
        // A port that is gone may come back.
        let text = view.text().await.unwrap_or_else(|error| format!("{error}\n"));
        let clear = if terminal { "\x1b[H\x1b[J" } else { "" };
        print(&format!("{clear}{text}"))?;
        tokio::select! {
            () = tokio::time::sleep(REFRESH) => {}
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Like `print!`, for readers that may go away (`| head`).
fn print(text: &str) -> Result<ExitCode, Box<dyn Error>> {
    match stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        result => Ok(result.map(|()| ExitCode::SUCCESS)?),
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
        if channels.is_empty() {
            return Ok("no channels\n".to_owned());
        }
        let mut text = String::new();
        for channel in &channels {
            text += &format!(
                "{} {} calls: {} started, {} succeeded, {} failed\n",
                self.style.bold(&channel.target),
                self.style.state(&channel.state.to_string()),
                channel.calls.started,
                channel.calls.succeeded,
                channel.calls.failed,
            );
            text += &self.style.states(&channel.tree.to_string());
            text.push('\n');
        }
        Ok(text)
    }

    async fn resources(&self) -> Result<String, Box<dyn Error>> {
        let clients = self.port.clients(port::Contents::Left).await?;
        if !self.flags.json {
            return Ok(Table::new(&clients, SystemTime::now()).to_text(self.style));
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
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

//! `proxyless check`: what a gRPC client would do with a bootstrap or with resources.

mod ads;
mod binary;
mod print;

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{IsTerminal as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use proxyless_control_plane::check::{Report, check, check_clients, check_sources, provider_instances};
use proxyless_control_plane::{Files, Messages};
use proxyless_xds::Gates;
use proxyless_xds::resource::DecodeContext;

use crate::status::port::{Contents, Port};
use crate::status::table::Style;

pub(crate) const EXAMPLES: &str = "\
Examples:
  proxyless check mesh.yaml                      a mesh file, as `serve` reads it
  proxyless check bootstrap.json meshes/         a bootstrap, and all files of a folder as one mesh
  proxyless check --deny-warnings --json mesh/   for CI
  proxyless check 127.0.0.1:18000                everything that a control plane sends to a wildcard
  proxyless check 127.0.0.1:18000 --listener greeter
  proxyless check 127.0.0.1:19000                a client's admin port, by CSDS
  proxyless status 127.0.0.1:19000 --json > dump.json && proxyless check dump.json

Exit codes: 0 everything is accepted, 1 a NACK or an error (or a warning with --deny-warnings), 2 wrong usage.";

#[derive(Clone, Debug, Args)]
pub(crate) struct CheckFlags {
    /// Files, folders, or addresses of control planes and admin ports
    #[arg(required = true, value_name = "FILE|DIR|ADDR")]
    inputs: Vec<String>,
    /// Ask a control plane for this listener, and for what it leads to, instead of everything
    #[arg(long, value_name = "NAME")]
    listener: Vec<String>,
    /// The node id for a control plane
    #[arg(long, value_name = "ID", default_value = "proxyless-check")]
    node: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Exit with 1 also if there are warnings
    #[arg(long)]
    deny_warnings: bool,
    /// Open all experimental gates; by default those of the environment (GRPC_EXPERIMENTAL_...)
    #[arg(long)]
    all_gates: bool,
}

pub(crate) async fn run(flags: CheckFlags) -> Result<ExitCode, Box<dyn Error>> {
    let messages = Messages::new()?;
    let (files, addresses): (Vec<&String>, Vec<&String>) =
        flags.inputs.iter().partition(|input| Path::new(input).exists() || !is_address(input));
    let (mut texts, mut dumped) = (Vec::new(), Vec::new());
    for path in files.into_iter().map(PathBuf::from) {
        if !path.exists() {
            let shown = path.display();
            return Err(format!(
                "{shown}: there is no such file or folder; an address has a port, such as 127.0.0.1:18000"
            )
            .into());
        }
        match binary::clients(&path)? {
            Some(clients) => dumped.extend(clients),
            None => texts.push(path),
        }
    }
    let files = Files::new(texts);
    let gates = match flags.all_gates {
        true => Gates::from_variables(|name| (!name.contains("BACKWARD_COMPAT")).then(|| "true".to_owned())),
        false => Gates::from_env(),
    };
    let mut cx = DecodeContext { gates, ..Default::default() };
    let mut report = Report::default();
    let sources = files.read()?;
    // Which certificate providers there are is the bootstrap's matter: a cluster may name any.
    cx.certificate_providers = Some(Arc::new(provider_instances(&sources, &messages)));
    report.extend(check_sources(&sources, &cx, &messages));
    report.extend(check_clients(&dumped, &cx, &messages));
    for address in addresses {
        report.extend(remote(address, &flags, &cx, &messages).await?);
    }
    let style = match stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        true => Style::Colours,
        false => Style::Plain,
    };
    let text = if flags.json { print::json(&report)? } else { print::text(&report, style) };
    crate::output::print(&text)?;
    let warned = report.findings(proxyless_control_plane::check::Severity::Warning) > 0;
    let failed = !report.is_accepted() || (flags.deny_warnings && warned);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A host and a port: nothing else with that form is likely to be a missing file.
fn is_address(input: &str) -> bool {
    let input = input.strip_prefix("http://").unwrap_or(input);
    input.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.trim_end_matches('/').parse::<u16>().is_ok()
    })
}

/// The resources of a control plane, or else of the clients behind an admin port.
async fn remote(
    address: &str,
    flags: &CheckFlags,
    cx: &DecodeContext,
    messages: &Messages,
) -> Result<Report, Box<dyn Error>> {
    if let Some(items) = ads::resources(address, &flags.node, &flags.listener, cx).await? {
        let mut cx = cx.clone();
        let mut known: BTreeSet<String> =
            cx.certificate_providers.iter().flat_map(|set| set.iter().cloned()).collect();
        known.extend(proxyless_control_plane::check::instances_of(&items));
        cx.certificate_providers = Some(Arc::new(known));
        return Ok(check(&items, &cx, messages));
    }
    let clients = Port::new(address)?.clients(Contents::Shown).await?;
    Ok(check_clients(&clients, cx, messages))
}

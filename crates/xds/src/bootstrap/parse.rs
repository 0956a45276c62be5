//! Parsing of the JSON text. Unknown fields are ignored (A27-30, A27-31).

use std::collections::BTreeMap;

use serde_json::Value;

use super::certificate_provider::certificate_providers;
use super::error::BootstrapProblem;
use super::json::{Place, Problems};
use super::node::NodeConfig;
use super::options::BootstrapOptions;
use super::server::{self, ServerConfig};
use super::{Authority, Bootstrap};
use crate::percent;

pub(super) fn bootstrap(text: &str, options: &BootstrapOptions) -> Result<Bootstrap, Vec<BootstrapProblem>> {
    // A27-12: invalid JSON is an error.
    let value: Value = serde_json::from_str(text)
        .map_err(|error| vec![BootstrapProblem::new("", format!("not JSON: {error}"))])?;
    let root = Place::root(&value);
    let mut problems = Problems::default();
    if root.object(&mut problems).is_none() {
        return Err(problems.0);
    }
    let bootstrap = Bootstrap {
        servers: servers(&root, options, &mut problems),
        node: root.field("node").map(|node| NodeConfig::parse(&node, &mut problems)).unwrap_or_default(),
        authorities: authorities(&root, options, &mut problems),
        certificate_providers: certificate_providers(&root, options, &mut problems),
        client_listener_template: client_listener_template(&root, &mut problems),
        server_listener_template: root.string_field("server_listener_resource_name_template", &mut problems),
    };
    if problems.0.is_empty() { Ok(bootstrap) } else { Err(problems.0) }
}

/// A27-13: at least one server; A27-14, A71-06: all are used, in the order of the list.
fn servers(root: &Place<'_>, options: &BootstrapOptions, problems: &mut Problems) -> Vec<ServerConfig> {
    let Some(field) = root.field("xds_servers") else {
        let hint = root.misspelt("xds_servers");
        problems.add("xds_servers", format!("is missing{hint}: at least one management server is needed"));
        return Vec::new();
    };
    let Some(list) = field.list(problems) else { return Vec::new() };
    if list.is_empty() {
        problems.add(field.path(), "is empty: at least one management server is needed");
    }
    list.iter().filter_map(|entry| server::parse(entry, options, problems)).collect()
}

/// A47-10, A47-13: the template of the Listeners of targets without an authority; an empty one counts as absent.
fn client_listener_template(root: &Place<'_>, problems: &mut Problems) -> Option<String> {
    let template = root.string_field("client_default_listener_resource_name_template", problems)?;
    Some(template).filter(|template| !template.is_empty())
}

fn authorities(
    root: &Place<'_>,
    options: &BootstrapOptions,
    problems: &mut Problems,
) -> BTreeMap<String, Authority> {
    let Some(field) = root.field("authorities") else { return BTreeMap::new() };
    let mut authorities = BTreeMap::new();
    for (name, entry) in field.entries(problems) {
        if entry.object(problems).is_none() {
            continue;
        }
        let template = entry.string_field("client_listener_resource_name_template", problems);
        // A47-05: the template must belong to the authority, whether its name is written encoded or not.
        let prefix = format!("xdstp://{name}/");
        let encoded = format!("xdstp://{}/", percent::encode(name.as_bytes(), percent::AUTHORITY));
        let fits = |template: &String| template.starts_with(&prefix) || template.starts_with(&encoded);
        if template.as_ref().is_some_and(|template| !fits(template)) {
            let path = entry.path_of("client_listener_resource_name_template");
            problems.add(&path, format!("must begin with {prefix:?} (gRFC A47)"));
        }
        let servers =
            entry.field("xds_servers").and_then(|servers| servers.list(problems)).unwrap_or_default();
        let servers = servers.iter().filter_map(|entry| server::parse(entry, options, problems)).collect();
        let authority = Authority { client_listener_resource_name_template: template, servers };
        authorities.insert(name.to_owned(), authority);
    }
    authorities
}

//! Text written by users: bootstraps and targets.

use envoy_types::pb::envoy::config::core::v3::Node;
use prost::Message as _;
use proxyless_xds::bootstrap::{Bootstrap, BootstrapOptions};
use proxyless_xds::client::{XdsCore, XdsCoreConfig};
use proxyless_xds::lrs::{LrsCore, LrsCoreConfig};
use proxyless_xds::{Gates, XdsTarget};

/// The JSON of a bootstrap.
///
/// Properties: no panic; the same text gives the same outcome; an error has at least one problem; a valid bootstrap has
/// a server, its node survives encoding, and cores can be created from it.
pub fn bootstrap(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut options = BootstrapOptions::default();
    (options.tls, options.google_default) = (true, true);
    options.gates = Gates::from_variables(|_| Some("true".to_owned()));
    let _ = Bootstrap::from_json_with(text, &options);
    let parsed = Bootstrap::from_json(text);
    assert_eq!(parsed, Bootstrap::from_json(text), "the second time");
    match parsed {
        Ok(bootstrap) => {
            assert!(!bootstrap.servers().is_empty());
            let encoded = bootstrap.encoded_node();
            let node = Node::decode(encoded.clone()).expect("a node");
            assert_eq!(node.encode_to_vec(), encoded);
            let _ = XdsCore::new(XdsCoreConfig::new(&bootstrap, Default::default(), 1));
            let _ = LrsCore::new(LrsCoreConfig::new(&bootstrap, bootstrap.server(), 1));
        }
        Err(error) => {
            assert!(!error.problems().is_empty());
            assert!(!error.to_string().is_empty());
        }
    }
}

/// The target of a channel.
///
/// Properties: no panic; a valid target has a name, and its text parses to a target with the same name and text.
pub fn target_uri(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match XdsTarget::parse(text) {
        Ok(target) => {
            assert!(!target.name().is_empty());
            let printed = target.to_string();
            let again = XdsTarget::parse(&printed);
            assert_eq!(again.as_ref(), Ok(&target), "{text:?} prints as {printed:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

use std::cell::RefCell;

use envoy_types::pb::google::protobuf::value::Kind;
use serde_json::{Value, json};

use super::*;
use crate::resource::Locality;

fn minimal() -> Value {
    json!({"xds_servers": [{"server_uri": "localhost:1234", "channel_creds": [{"type": "insecure"}]}]})
}

fn from_sources(
    variable: impl Fn(&str) -> Option<String>,
    read_file: impl Fn(&Path) -> io::Result<String>,
) -> Result<Bootstrap, BootstrapError> {
    Bootstrap::from_sources(variable, read_file, &BootstrapOptions::default())
}

/// A good bootstrap with one field of the root set.
fn with(field: &str, value: Value) -> Result<Bootstrap, BootstrapError> {
    let mut json = minimal();
    json[field] = value;
    Bootstrap::from_json(&json.to_string())
}

/// A good bootstrap with one field of the server set.
fn with_server(field: &str, value: Value) -> Result<Bootstrap, BootstrapError> {
    let mut json = minimal();
    json["xds_servers"][0][field] = value;
    Bootstrap::from_json(&json.to_string())
}

fn problems(result: Result<Bootstrap, BootstrapError>) -> Vec<(String, String)> {
    result.unwrap_err().problems().iter().map(|p| (p.path.clone(), p.reason.clone())).collect()
}

fn one_problem(result: Result<Bootstrap, BootstrapError>, path: &str, why: &str) {
    let problems = problems(result);
    assert!(
        matches!(problems.as_slice(), [(p, w)] if p == path && w.contains(why)),
        "{problems:?}, expected {path}: {why}"
    );
}

#[test]
fn a27_10_11_file_wins_over_inline_text() {
    let asked = RefCell::new(Vec::new());
    let bootstrap = from_sources(
        |name| Some(if name == FILE_VARIABLE { "/etc/xds.json".into() } else { "{".into() }),
        |path| {
            asked.borrow_mut().push(path.to_owned());
            Ok(minimal().to_string())
        },
    );
    assert_eq!(bootstrap.unwrap().server().uri, "localhost:1234");
    assert_eq!(asked.into_inner(), [Path::new("/etc/xds.json")]);
}

#[test]
fn a27_11_inline_text_is_used_without_a_file() {
    let inline = |name: &str| (name == INLINE_VARIABLE).then(|| minimal().to_string());
    let no_file = |_: &Path| -> io::Result<String> { panic!("no file was named") };
    assert!(from_sources(inline, no_file).is_ok());
    let empty =
        |name: &str| Some(if name == INLINE_VARIABLE { minimal().to_string() } else { String::new() });
    assert!(from_sources(empty, no_file).is_ok());
}

#[test]
fn a27_10_neither_variable_is_an_error_that_names_both() {
    let error = from_sources(|_| None, |_| Ok(String::new())).unwrap_err().to_string();
    assert!(error.contains("GRPC_XDS_BOOTSTRAP ") && error.contains("GRPC_XDS_BOOTSTRAP_CONFIG"), "{error}");
}

#[test]
fn a27_12_missing_file_is_an_error_that_names_it() {
    let file = |name: &str| (name == FILE_VARIABLE).then(|| "/no/such".to_owned());
    let error = from_sources(file, |_| Err(io::ErrorKind::NotFound.into())).unwrap_err().to_string();
    assert!(error.contains("/no/such") && error.contains("GRPC_XDS_BOOTSTRAP"), "{error}");
}

#[test]
fn a27_12_text_that_is_not_json_is_an_error_with_its_place() {
    let error = Bootstrap::from_json("{ this is not json").unwrap_err().to_string();
    assert!(error.contains("not JSON") && error.contains("line 1 column 3"), "{error}");
    one_problem(Bootstrap::from_json("[]"), "", "must be an object, is a list");
}

#[test]
fn a27_12_error_says_where_the_text_came_from() {
    let inline = |name: &str| (name == INLINE_VARIABLE).then(|| "{}".to_owned());
    let error = from_sources(inline, |_| Ok(String::new())).unwrap_err();
    assert_eq!(error.origin(), "variable GRPC_XDS_BOOTSTRAP_CONFIG");
    assert!(error.to_string().contains("xds_servers: is missing"), "{error}");
}

#[test]
fn a27_13_servers_must_be_a_list_of_at_least_one() {
    one_problem(Bootstrap::from_json("{}"), "xds_servers", "missing");
    one_problem(with("xds_servers", json!([])), "xds_servers", "empty");
    one_problem(with("xds_servers", json!({})), "xds_servers", "must be a list, is an object");
    one_problem(with("xds_servers", json!([3])), "xds_servers[0]", "must be an object, is a number");
}

#[test]
fn a27_14_first_server_is_used_and_the_rest_validated() {
    let mut json = minimal();
    let mut second = json["xds_servers"][0].clone();
    second["server_uri"] = json!("other:1");
    json["xds_servers"].as_array_mut().unwrap().push(second);
    let bootstrap = Bootstrap::from_json(&json.to_string()).unwrap();
    assert_eq!((bootstrap.server().uri.as_str(), bootstrap.servers().len()), ("localhost:1234", 2));
    json["xds_servers"][1]["server_uri"] = json!(7);
    one_problem(
        Bootstrap::from_json(&json.to_string()),
        "xds_servers[1].server_uri",
        "must be a string, is a number",
    );
}

#[test]
fn a27_15_server_needs_a_uri() {
    one_problem(with_server("server_uri", Value::Null), "xds_servers[0].server_uri", "missing");
    one_problem(with_server("server_uri", json!("")), "xds_servers[0].server_uri", "empty");
}

#[test]
fn a27_16_19_first_supported_creds_are_used() {
    let creds = json!([{"type": "no_such"}, {"type": "insecure"}, {"type": "tls", "config": {}}]);
    let bootstrap = with_server("channel_creds", creds).unwrap();
    assert_eq!(bootstrap.server().channel_creds, ChannelCreds::Insecure);
}

#[test]
fn a27_17_18_no_supported_creds_is_an_error() {
    let path = "xds_servers[0].channel_creds";
    one_problem(with_server("channel_creds", json!([{"type": "no_such"}])), path, "supported: insecure");
    one_problem(with_server("channel_creds", json!([])), path, "none given");
    one_problem(with_server("channel_creds", Value::Null), path, "none given");
    let malformed = with_server("channel_creds", json!([{"config": {}}]));
    one_problem(malformed, "xds_servers[0].channel_creds[0].type", "missing");
}

#[test]
fn a27_20_google_default_is_used_or_said_to_need_its_feature() {
    let with = |google_default: bool, creds: Value| {
        let mut json = minimal();
        json["xds_servers"][0]["channel_creds"] = creds;
        let options = BootstrapOptions { google_default, ..BootstrapOptions::default() };
        Bootstrap::from_json_with(&json.to_string(), &options)
    };
    let google = json!({"type": "google_default"});
    let both = json!([google, {"type": "insecure"}]);
    let used = |result: Result<Bootstrap, _>| result.unwrap().server().channel_creds.clone();
    assert_eq!(used(with(true, both.clone())), ChannelCreds::GoogleDefault);
    assert_eq!(used(with(false, both)), ChannelCreds::Insecure);
    let why = "google_default needs the cargo feature google-default";
    one_problem(with(false, json!([google])), "xds_servers[0].channel_creds", why);
}

#[test]
fn a27_21_22_23_node_is_taken_from_the_bootstrap() {
    let node = with(
        "node",
        json!({"id": "n", "cluster": "c", "locality": {"region": "R", "zone": "Z", "sub_zone": "S"},
               "metadata": {"s": "v", "n": 1.5, "b": true, "z": null, "l": [1, "x"], "o": {"k": "v"}}}),
    )
    .unwrap()
    .node();
    assert_eq!((node.id.as_str(), node.cluster.as_str()), ("n", "c"));
    let locality = node.locality.unwrap();
    assert_eq!((locality.region, locality.zone, locality.sub_zone), ("R".into(), "Z".into(), "S".into()));
    let fields = node.metadata.unwrap().fields;
    let kind = |key: &str| fields[key].kind.clone().unwrap();
    assert_eq!(kind("s"), Kind::StringValue("v".into()));
    assert_eq!(kind("n"), Kind::NumberValue(1.5));
    assert_eq!(kind("b"), Kind::BoolValue(true));
    assert_eq!(kind("z"), Kind::NullValue(0));
    assert!(matches!(kind("l"), Kind::ListValue(list) if list.values.len() == 2));
    assert!(matches!(kind("o"), Kind::StructValue(object) if object.fields.contains_key("k")));
}

#[test]
fn a27_24_node_is_read_by_the_proto_json_rules() {
    let camel = with("node", json!({"locality": {"subZone": "S"}, "id": null})).unwrap().node();
    assert_eq!(camel.locality.unwrap().sub_zone, "S");
    let twice = with("node", json!({"locality": {"subZone": "S", "sub_zone": "T"}}));
    one_problem(twice, "node.locality.sub_zone", "given twice");
    one_problem(with("node", json!({"id": 7})), "node.id", "must be a string, is a number");
}

#[test]
fn a27_25_26_27_29_56_client_fills_in_its_own_fields() {
    let node = with(
        "node",
        json!({"user_agent_name": "x", "userAgentName": "x", "user_agent_version": "y", "client_features": ["z"]}),
    )
    .unwrap()
    .node();
    assert!(node.user_agent_name.to_lowercase().starts_with("grpc"), "{}", node.user_agent_name);
    let version = core::node::UserAgentVersionType::UserAgentVersion(env!("CARGO_PKG_VERSION").into());
    assert_eq!(node.user_agent_version_type, Some(version));
    let features = ["envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"];
    assert_eq!(node.client_features, features);
}

#[test]
fn a27_30_31_unknown_fields_are_ignored_everywhere() {
    let mut json = minimal();
    json["future"] = json!({"x": [1]});
    json["node"] = json!({"id": "n", "future": 3, "locality": {"future": []}});
    json["xds_servers"][0]["future"] = json!(true);
    json["xds_servers"][0]["channel_creds"][0]["future"] = json!(1);
    json["xds_servers"][0]["server_features"] =
        json!(["xds_v3", "future", 7, {"x": 1}, null, ["fail_on_data_errors"]]);
    let bootstrap = Bootstrap::from_json(&json.to_string()).unwrap();
    assert_eq!(bootstrap.server().features, ServerFeatures::default());
    assert_eq!(bootstrap.node_id(), "n");
}

#[test]
fn a53_a88_server_features_are_read() {
    let features =
        json!(["ignore_resource_deletion", "fail_on_data_errors", "resource_timer_is_transient_error"]);
    let read = with_server("server_features", features).unwrap().server().features;
    assert!(
        read.ignore_resource_deletion && read.fail_on_data_errors && read.resource_timer_is_transient_error
    );
    one_problem(
        with_server("server_features", json!("x")),
        "xds_servers[0].server_features",
        "must be a list",
    );
}

#[test]
fn every_problem_is_told_at_once() {
    let json = json!({
        "xds_servers": [{"channel_creds": [{"type": "x"}]},
                        {"server_uri": "a b:1", "channel_creds": [{"type": "insecure"}]}],
        "node": {"id": 1, "metadata": []},
        "authorities": {"auth": {"client_listener_resource_name_template": "xdstp://other/%s"}},
        "certificate_providers": {"p": {"config": 3}},
        "server_listener_resource_name_template": 4,
    });
    let found = problems(Bootstrap::from_json(&json.to_string()));
    let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "xds_servers[0].server_uri",
            "xds_servers[0].channel_creds",
            "xds_servers[1].server_uri",
            "node.id",
            "node.metadata",
            "authorities[\"auth\"].client_listener_resource_name_template",
            "certificate_providers[\"p\"].plugin_name",
            "server_listener_resource_name_template",
        ]
    );
}

#[test]
fn a47_a29_authorities_and_certificate_providers_are_kept() {
    let mut json = minimal();
    let servers = json["xds_servers"].clone();
    json["authorities"] = json!({
        "auth": {"client_listener_resource_name_template": "xdstp://auth/x/%s", "xds_servers": servers},
        "plain": {},
    });
    json["certificate_providers"] =
        json!({"p": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/ca"}}});
    json["client_default_listener_resource_name_template"] = json!("%s");
    json["server_listener_resource_name_template"] = json!("s/%s");
    let bootstrap = Bootstrap::from_json(&json.to_string()).unwrap();
    assert_eq!(bootstrap.authorities()["auth"].servers.len(), 1);
    assert!(bootstrap.authorities()["plain"].servers.is_empty());
    let roots = Some(RootsFile::CaCertificates("/ca".into()));
    let files = CertificateFiles { roots, ..Default::default() };
    assert_eq!(bootstrap.certificate_providers()["p"], CertificateProvider::FileWatcher(files));
    assert_eq!(bootstrap.client_default_listener_resource_name_template(), Some("%s"));
    assert_eq!(bootstrap.server_listener_resource_name_template(), Some("s/%s"));
    json["authorities"]["auth"]["xds_servers"][0]["server_uri"] = json!("");
    one_problem(
        Bootstrap::from_json(&json.to_string()),
        "authorities[\"auth\"].xds_servers[0].server_uri",
        "empty",
    );
}

#[test]
fn a47_10_default_template_may_be_any_text() {
    let field = "client_default_listener_resource_name_template";
    for template in ["xdstp://auth/envoy.config.listener.v3.Listener/%s", "prefix/%s", "fixed"] {
        let bootstrap = with(field, json!(template)).unwrap();
        assert_eq!(bootstrap.client_default_listener_resource_name_template(), Some(template));
    }
    for template in [json!(""), Value::Null] {
        assert_eq!(with(field, template).unwrap().client_default_listener_resource_name_template(), None);
    }
    one_problem(with(field, json!(3)), field, "must be a string");
}

#[test]
fn a47_05_template_of_an_authority_must_begin_with_it() {
    let with_template = |template: &str| {
        with("authorities", json!({"a b": {"client_listener_resource_name_template": template}}))
    };
    assert!(with_template("xdstp://a b/x/%s").is_ok() && with_template("xdstp://a%20b/x/%s").is_ok());
    let path = "authorities[\"a b\"].client_listener_resource_name_template";
    for template in ["xdstp://a/x/%s", "xdstp:///x", "%s", "xdstp://a b", "xdstp:a b/x"] {
        one_problem(with_template(template), path, "must begin with \"xdstp://a b/\"");
    }
}

#[test]
fn a47_08_09_17_a71_06_servers_are_listed_once_and_in_order() {
    let server = |uri: &str, features: &[&str]| json!({"server_uri": uri, "channel_creds": [{"type": "insecure"}], "server_features": features});
    let mut json = minimal();
    json["xds_servers"] = json!([server("a:1", &[]), server("b:1", &[]), server("a:1", &["unknown"])]);
    json["authorities"] = json!({
        "none": {},
        "empty": {"xds_servers": []},
        "shared": {"xds_servers": [server("c:1", &[]), server("b:1", &[])]},
        "other": {"xds_servers": [server("a:1", &["fail_on_data_errors"])]},
    });
    let bootstrap = Bootstrap::from_json(&json.to_string()).unwrap();
    let lists = bootstrap.server_lists();
    assert_eq!(
        lists.servers.iter().map(|server| &*server.uri).collect::<Vec<_>>(),
        ["a:1", "b:1", "a:1", "c:1"]
    );
    assert_eq!(lists.default, [0, 1]);
    let of = |name: &str| lists.authorities[name].clone();
    assert_eq!(
        (of("none"), of("empty"), of("shared"), of("other")),
        (vec![0, 1], vec![0, 1], vec![3, 1], vec![2])
    );
    assert!(bootstrap.has_fallback());
    assert!(!Bootstrap::from_json(&minimal().to_string()).unwrap().has_fallback());
}

#[test]
fn a27_13_a_misspelt_key_is_named_where_one_is_missing() {
    for wrong in ["xds_server", "xds_servres", "XDS_SERVERS"] {
        let json = json!({ wrong: minimal()["xds_servers"], "node": {} });
        one_problem(Bootstrap::from_json(&json.to_string()), "xds_servers", &format!("there is {wrong:?}"));
    }
    let unlike = problems(Bootstrap::from_json(r#"{"servers": [], "node": {}}"#));
    assert_eq!(unlike[0].1, "is missing: at least one management server is needed");
    let mut json = minimal();
    json["xds_servers"][0] = json!({"server_url": "a:1", "channel_creds": [{"type": "insecure"}]});
    one_problem(
        Bootstrap::from_json(&json.to_string()),
        "xds_servers[0].server_uri",
        "is missing (there is \"server_url\", which is not known)",
    );
}

#[test]
fn server_uris_of_every_form_are_read() {
    let dns = |host: &str, port| ServerTarget::Dns { host: host.into(), port };
    let ip = |text: &str| ServerTarget::Addresses(text.split(',').map(|one| one.parse().unwrap()).collect());
    for (uri, target) in [
        ("istiod.istio-system.svc:15010", dns("istiod.istio-system.svc", 15010)),
        ("host", dns("host", 443)),
        ("dns:///host:80", dns("host", 80)),
        ("dns:host:80", dns("host", 80)),
        ("127.0.0.1:80", ip("127.0.0.1:80")),
        ("[::1]:443", ip("[::1]:443")),
        ("[::1]", ip("[::1]:443")),
        ("::1", ip("[::1]:443")),
        ("ipv4:10.0.0.1:80,10.0.0.2:81", ip("10.0.0.1:80,10.0.0.2:81")),
        ("ipv6:[::1]:80", ip("[::1]:80")),
        ("unix:///run/xds.sock", ServerTarget::Unix("/run/xds.sock".into())),
        ("unix:xds.sock", ServerTarget::Unix("xds.sock".into())),
        ("unix:/run/xds.sock", ServerTarget::Unix("/run/xds.sock".into())),
    ] {
        assert_eq!(ServerTarget::parse(uri), Ok(target), "{uri}");
    }
}

#[test]
fn invalid_server_uris_are_explained() {
    for (uri, why) in [
        ("https://host:1", "scheme"),
        ("dns://8.8.8.8/host:1", "authority"),
        ("host:port", "not a port"),
        ("host:70000", "not a port"),
        ("host:+1", "not a port"),
        ("host:0", "not a port"),
        (":80", "not a host name"),
        ("a b:80", "not a host name"),
        ("[::1:80", "bracket"),
        ("[::1]80", "not a port"),
        ("ipv4:[::1]:80", "family"),
        ("ipv6:host:80", "family"),
        ("unix:", "no path"),
        ("unix://host/path", "absolute path"),
    ] {
        let error = ServerTarget::parse(uri).unwrap_err();
        assert!(error.contains(why), "{uri}: {error}");
    }
}

#[test]
fn builder_makes_the_same_as_json() {
    let locality = Locality { region: "R".into(), zone: "Z".into(), sub_zone: "S".into() };
    let built = Bootstrap::builder()
        .server("localhost:1234")
        .node_id("n")
        .node_cluster("c")
        .locality(locality)
        .metadata(json!({"k": "v"}))
        .build()
        .unwrap();
    let node = json!({"id": "n", "cluster": "c", "metadata": {"k": "v"},
                      "locality": {"region": "R", "zone": "Z", "sub_zone": "S"}});
    assert_eq!(built, with("node", node).unwrap());
}

#[test]
fn builder_tells_every_problem() {
    let found = problems(Bootstrap::builder().server("http://x").metadata(json!(3)).build());
    let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["xds_servers[0].server_uri", "node.metadata"]);
    one_problem(Bootstrap::builder().build(), "xds_servers", "empty");
}

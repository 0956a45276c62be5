//! Tests of the cluster graph.

use super::*;

/// A graph by name: aggregates with their children, leaves with their state, and missing clusters.
#[derive(Default)]
struct Graph(BTreeMap<String, Node>);

impl Graph {
    fn aggregate(mut self, name: &str, children: &[&str]) -> Self {
        self.add(name, children.iter().map(|&child| child.into()).collect());
        self
    }

    fn leaves(mut self, names: &[&str], data: LeafData) -> Self {
        self.0.extend(names.iter().map(|name| (name.to_string(), Node::Leaf(data))));
        self
    }

    fn missing(mut self, name: &str) -> Self {
        self.0.insert(name.into(), Node::Missing(format!("Cluster {name}: gone").into()));
        self
    }

    fn add(&mut self, name: &str, clusters: Vec<Arc<str>>) {
        let children = Arc::new(AggregateClusterConfig { clusters });
        self.0.insert(name.into(), Node::Aggregate { children, note: None });
    }

    fn resolve(&self, roots: &[&str]) -> Resolution {
        let mut resolution = Resolution::default();
        for &root in roots {
            resolution.add(&root.into(), |name| self.0.get(&**name).cloned().unwrap_or(Node::Loading));
        }
        resolution
    }
}

fn leaves(resolution: &Resolution, root: &str) -> String {
    match &resolution.roots[root] {
        Root::Aggregate(flattened) => {
            flattened.leaves.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(" ")
        }
        other => format!("{other:?}"),
    }
}

fn flattened(resolution: &Resolution, root: &str) -> Flattened {
    match &resolution.roots[root] {
        Root::Aggregate(flattened) => flattened.clone(),
        other => panic!("{root} is not an aggregate with leaves: {other:?}"),
    }
}

fn failure(resolution: &Resolution, root: &str) -> String {
    match &resolution.roots[root] {
        Root::Failed(why) => why.to_string(),
        other => panic!("{root} did not fail: {other:?}"),
    }
}

/// `agg1` above `agg2` above ... above the leaf `leaf`.
fn chain(aggregates: usize) -> Graph {
    let mut graph = Graph::default().leaves(&["leaf"], LeafData::Usable);
    for i in 1..=aggregates {
        let child = if i == aggregates { "leaf".into() } else { format!("agg{}", i + 1) };
        graph.add(&format!("agg{i}"), vec![child.into()]);
    }
    graph
}

#[test]
fn a37_09_a37_10_depth_first_left_to_right() {
    let graph = Graph::default()
        .aggregate("a", &["b", "c"])
        .aggregate("c", &["d", "e"])
        .leaves(&["b", "d", "e"], LeafData::Usable);
    let resolution = graph.resolve(&["a"]);
    assert_eq!(leaves(&resolution, "a"), "b d e");
    assert_eq!(resolution.visited, ["a", "b", "c", "d", "e"].map(Arc::from).into());
}

#[test]
fn a37_12_duplicate_counts_at_its_earliest_place() {
    let graph = Graph::default()
        .aggregate("a", &["b", "c", "b", "d"])
        .aggregate("c", &["d", "b"])
        .leaves(&["b", "d"], LeafData::Usable);
    assert_eq!(leaves(&graph.resolve(&["a"]), "a"), "b d");
}

#[test]
fn a37_12_loops_end() {
    let graph = Graph::default()
        .aggregate("self", &["self"])
        .aggregate("self2", &["self2", "x"])
        .aggregate("p", &["q", "x"])
        .aggregate("q", &["p", "y"])
        .leaves(&["x", "y"], LeafData::Usable);
    let resolution = graph.resolve(&["self", "self2", "p", "q"]);
    assert!(failure(&resolution, "self").contains("aggregate cluster self: no cluster with endpoints"));
    assert_eq!(leaves(&resolution, "self2"), "x");
    assert_eq!(leaves(&resolution, "p"), "y x");
    assert_eq!(leaves(&resolution, "q"), "x y");
}

#[test]
fn a74_shared_leaf_is_below_each_root() {
    let graph = Graph::default()
        .aggregate("a", &["x", "y"])
        .aggregate("b", &["y", "x"])
        .leaves(&["x", "y"], LeafData::Usable);
    let resolution = graph.resolve(&["a", "b", "x"]);
    assert_eq!(leaves(&resolution, "a"), "x y");
    assert_eq!(leaves(&resolution, "b"), "y x");
    assert_eq!(resolution.roots["x"], Root::Leaf(LeafData::Usable));
}

#[test]
fn a37_17_fifteen_aggregates_above_a_leaf_pass() {
    assert_eq!(leaves(&chain(15).resolve(&["agg1"]), "agg1"), "leaf");
}

#[test]
fn a37_18_sixteen_aggregates_fail_their_root_only() {
    let graph = chain(16);
    let resolution = graph.resolve(&["agg1", "agg2", "leaf"]);
    let why = failure(&resolution, "agg1");
    assert!(why.contains("agg1 -> agg2 -> ") && why.ends_with("-> agg16 -> leaf"), "{why}");
    assert_eq!(leaves(&resolution, "agg2"), "leaf");
    assert_eq!(resolution.roots["leaf"], Root::Leaf(LeafData::Usable));
}

#[test]
fn a37_12_duplicate_below_the_limit_does_not_count_as_a_level() {
    let mut graph = chain(15);
    graph.add("agg15", vec!["leaf".into()]);
    graph.add("agg16", vec!["leaf".into()]);
    graph.add("agg15", vec!["leaf".into(), "agg1".into()]);
    assert_eq!(leaves(&graph.resolve(&["agg1"]), "agg1"), "leaf");
}

#[test]
fn a74_missing_child_is_skipped_with_a_note() {
    let graph = Graph::default().aggregate("a", &["m", "x"]).missing("m").leaves(&["x"], LeafData::Usable);
    let resolution = graph.resolve(&["a"]);
    let found = flattened(&resolution, "a");
    assert_eq!(leaves(&resolution, "a"), "x");
    assert_eq!(found.notes, ["Cluster m: gone".into()]);
    assert_eq!(resolution.missing.len(), 1);
    assert!(resolution.visited.contains("m"), "a child that is missing is still watched");
}

#[test]
fn a74_no_leaf_left_fails_the_root() {
    let graph = Graph::default().aggregate("a", &["m", "n"]).aggregate("n", &["m"]).missing("m").missing("r");
    let resolution = graph.resolve(&["a", "r"]);
    let why = failure(&resolution, "a");
    assert!(why.starts_with("aggregate cluster a:") && why.contains("Cluster m: gone"), "{why}");
    assert_eq!(failure(&resolution, "r"), "Cluster r: gone");
}

#[test]
fn a37_11_starts_with_the_first_leaf_that_can_serve() {
    use LeafData::{Empty, Loading, Usable};
    for (data, starts) in [
        (vec![Usable, Loading], true),
        (vec![Empty, Usable, Loading], true),
        (vec![Loading, Usable], false),
        (vec![Empty, Loading, Usable], false),
        (vec![Empty, Loading], false),
        (vec![Empty, Empty], true),
        (vec![Loading], false),
    ] {
        let leaves: Vec<_> = data.iter().enumerate().map(|(i, &data)| (i.to_string().into(), data)).collect();
        let found = Flattened { leaves, notes: Vec::new() };
        assert_eq!(found.can_start(), starts, "{data:?}");
        assert_eq!(found.is_settled(), !data.contains(&Loading), "{data:?}");
    }
}

#[test]
fn a37_11_unknown_child_holds_its_place() {
    let graph = Graph::default().aggregate("a", &["b", "later", "c"]).leaves(&["b", "c"], LeafData::Usable);
    let found = flattened(&graph.resolve(&["a"]), "a");
    let data: Vec<_> = found.leaves.iter().map(|(_, data)| *data).collect();
    assert_eq!(data, [LeafData::Usable, LeafData::Loading, LeafData::Usable]);
}

#[test]
fn flattening_is_linear_in_the_edges() {
    // 100 aggregates in ten layers, with 100 children each: the whole next layer, ten back up (loops), and 80 of the
    // leaves, so that each leaf is named sixteen times.
    let mut graph = Graph::default();
    let leaf = |i: usize| format!("leaf{}", i % 500);
    let mut edges = 0;
    for i in 0..100 {
        let layer_below = (0..10).map(|k| format!("agg{}", (i / 10 * 10 + 10 + k).min(99)));
        let back_up = (0..10).map(|k| format!("agg{}", (i / 10 * 10_usize).saturating_sub(10 * k)));
        let children: Vec<Arc<str>> =
            layer_below.chain(back_up).chain((0..80).map(|k| leaf(i * 80 + k))).map(Arc::from).collect();
        edges += children.len();
        graph.add(&format!("agg{i}"), children);
    }
    for i in 0..500 {
        graph.0.insert(leaf(i), Node::Leaf(LeafData::Usable));
    }
    assert_eq!(edges, 10_000);
    let resolution = graph.resolve(&["agg0"]);
    assert!(resolution.steps <= edges + 1, "{} steps for {edges} edges", resolution.steps);
    match &resolution.roots["agg0"] {
        Root::Aggregate(found) => assert_eq!(found.leaves.len(), 500),
        other => panic!("{other:?}"),
    }
    let both = graph.resolve(&["agg0", "agg1"]);
    assert!(both.steps <= 2 * (edges + 1), "each root costs its own edges, no more");
}

#[test]
fn a74_errors_stay_short_for_any_number_of_missing_resources() {
    let names: Vec<_> = (0..400).map(|number| format!("a-cluster-with-a-long-name-{number}")).collect();
    let children: Vec<_> = names.iter().map(String::as_str).collect();
    let graph =
        names.iter().fold(Graph::default().aggregate("root", &children), |graph, name| graph.missing(name));
    let why = failure(&graph.resolve(&["root"]), "root");
    assert!(why.ends_with("Cluster a-cluster-with-a-long-name-4: gone; and 395 more"), "{why}");
    assert!(why.len() < 500, "{} bytes", why.len());
}

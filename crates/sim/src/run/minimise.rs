//! Minimises the script of a failure.

use proxyless_xds::resource::ResourceType;

use crate::run::{Failure, Trace, run};
use crate::script::config::Mesh;
use crate::script::{Mood, Script};

/// Drops steps and initial resources as long as the same rule is broken.
///
/// Returns the shortest failing script found and its failure with the trace; `None` if the script does not fail.
pub(crate) fn minimise(script: &Script) -> Option<(Script, Box<Failure>)> {
    let rule = run(script, Trace::Off).err()?.violation.rule;
    let fails =
        |script: &Script| run(script, Trace::Off).is_err_and(|failure| failure.violation.rule == rule);
    let mut shortest = shorten(script.clone(), fails);
    // In a gentle world every route leads to a backend; dropping resources would make it fail for valid reasons.
    if script.settings.mood == Mood::Chaos {
        shortest = shorten(without_resources(shortest, fails), fails);
    }
    let failure = run(&shortest, Trace::On).err()?;
    Some((shortest, failure))
}

/// Drops large pieces first, then smaller ones down to single steps, until no step can be dropped.
fn shorten(mut script: Script, fails: impl Fn(&Script) -> bool) -> Script {
    let mut size = script.steps.len().div_ceil(2);
    loop {
        let before = script.steps.len();
        let mut start = 0;
        while start < script.steps.len() {
            let mut candidate = script.clone();
            let end = (start + size).min(candidate.steps.len());
            candidate.steps.drain(start..end);
            if fails(&candidate) {
                script = candidate;
            } else {
                start += size;
            }
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if script.steps.len() == before {
            return script;
        }
    }
}

/// Drops initial resources and DNS records, one at a time.
fn without_resources(mut script: Script, fails: impl Fn(&Script) -> bool) -> Script {
    let whole = script.mesh.clone();
    let mut drop_if = |name: &str, remove: fn(&mut Mesh, &str)| {
        let mut candidate = script.clone();
        remove(&mut candidate.mesh, name);
        if candidate.mesh != script.mesh && fails(&candidate) {
            script = candidate;
        }
    };
    for resource_type in ResourceType::ALL {
        for name in whole.names(resource_type) {
            drop_if(&name, remover(resource_type));
        }
    }
    for host in whole.hosts.keys() {
        drop_if(host, |mesh, name| drop(mesh.hosts.remove(name)));
    }
    script
}

fn remover(resource_type: ResourceType) -> fn(&mut Mesh, &str) {
    match resource_type {
        ResourceType::Listener => |mesh, name| drop(mesh.listeners.remove(name)),
        ResourceType::RouteConfiguration => |mesh, name| drop(mesh.routes.remove(name)),
        ResourceType::Cluster => |mesh, name| drop(mesh.clusters.remove(name)),
        ResourceType::ClusterLoadAssignment => |mesh, name| drop(mesh.assignments.remove(name)),
        ResourceType::AggregateClusterConfig => |mesh, name| drop(mesh.lists.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::script;
    use crate::script::{Action, Step};

    #[test]
    fn keeps_just_the_steps_that_a_failure_needs() {
        let is_change = |step: &&Step| matches!(step.action, Action::Set(_));
        let count = |script: &Script| script.steps.iter().filter(is_change).count();
        let long = (0..).map(script).find(|script| count(script) > 5).expect("a script with changes");
        let short = shorten(long, |script| count(script) >= 2);
        assert_eq!((short.steps.len(), count(&short)), (2, 2));
    }

    #[test]
    fn keeps_just_the_resources_that_a_failure_needs() {
        let has = |script: &Script| !script.mesh.clusters.is_empty() && !script.mesh.hosts.is_empty();
        let long = (0..).map(script).find(has).expect("a script with clusters and hosts");
        let mesh = without_resources(long, has).mesh;
        assert_eq!((mesh.clusters.len(), mesh.hosts.len()), (1, 1));
        let others = [mesh.listeners.len(), mesh.routes.len(), mesh.assignments.len(), mesh.lists.len()];
        assert_eq!(others, [0; 4]);
    }

    #[test]
    fn nothing_to_do_for_a_script_that_does_not_fail() {
        assert!(minimise(&script(0)).is_none());
    }
}

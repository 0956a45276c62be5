//! Removal of DRAINING endpoints.

use std::sync::Arc;

use proxyless_balancer::api::{Endpoint, EndpointHealth, Endpoints, Group};

/// Removes DRAINING endpoints, and keeps the last result: an unchanged list is not visited again.
#[derive(Default)]
pub(super) struct WithoutDraining {
    last: Option<(Endpoints, Endpoints)>,
}

impl WithoutDraining {
    /// A75-20: the child never sees DRAINING endpoints, whatever override_host_status says. A list without any stays
    /// the same slice in memory.
    pub(super) fn of(&mut self, endpoints: &Endpoints) -> Endpoints {
        let last = self.last.as_ref().map(|(with, without)| (with, without));
        let without = without_draining(endpoints, last);
        self.last = Some((endpoints.clone(), without.clone()));
        without
    }
}

fn without_draining(endpoints: &Endpoints, last: Option<(&Endpoints, &Endpoints)>) -> Endpoints {
    if let Some((with, without)) = last
        && with.ptr_eq(endpoints)
    {
        return without.clone();
    }
    match endpoints {
        Endpoints::List(list) if list.iter().any(|endpoint| is_draining(endpoint)) => {
            Endpoints::List(list.iter().filter(|endpoint| !is_draining(endpoint)).cloned().collect())
        }
        Endpoints::List(_) => endpoints.clone(),
        Endpoints::Groups(groups) => {
            let last_of = |place: usize| {
                let (with, without) = last?;
                Some((&with.groups().get(place)?.endpoints, &without.groups().get(place)?.endpoints))
            };
            let filtered = |(place, group): (usize, &Group)| Group {
                endpoints: without_draining(&group.endpoints, last_of(place)),
                ..group.clone()
            };
            let filtered: Arc<[Group]> = groups.iter().enumerate().map(filtered).collect();
            let same = groups.iter().zip(&*filtered).all(|(a, b)| a.endpoints.ptr_eq(&b.endpoints));
            if same { endpoints.clone() } else { Endpoints::Groups(filtered) }
        }
    }
}

fn is_draining(endpoint: &Endpoint) -> bool {
    endpoint.health == EndpointHealth::Draining
}

#[cfg(test)]
mod tests {
    use proxyless_balancer::testing::endpoint;

    use super::*;

    #[test]
    fn a75_20_unchanged_endpoints_stay_the_same_in_memory() {
        let draining = || Endpoint { health: EndpointHealth::Draining, ..endpoint(1) };
        let group = |endpoints| Group { name: "g".into(), weight: 1, locality: None, endpoints };
        let (some, none) = (Endpoints::of([draining(), endpoint(2)]), Endpoints::of([endpoint(3)]));
        let groups =
            |others| Endpoints::Groups(Arc::new([group(some.clone()), group(none.clone()), group(others)]));
        let mut without = WithoutDraining::default();
        let first = without.of(&groups(Endpoints::of([endpoint(4)])));
        let second = without.of(&groups(Endpoints::of([draining(), endpoint(5)])));
        let lists = |endpoints: &Endpoints| -> Vec<Vec<u16>> {
            let number = |endpoint: &Arc<Endpoint>| {
                (0..9).find(|&n| endpoint.addresses[0] == proxyless_balancer::testing::address(n)).unwrap()
            };
            endpoints
                .groups()
                .iter()
                .map(|group| group.endpoints.list().iter().map(number).collect())
                .collect()
        };
        assert_eq!(lists(&first), [[2], [3], [4]]);
        assert_eq!(lists(&second), [[2], [3], [5]]);
        for (first, second) in first.groups().iter().zip(second.groups()).take(2) {
            assert!(first.endpoints.ptr_eq(&second.endpoints));
        }
        assert!(second.groups()[1].endpoints.ptr_eq(&none));
    }
}

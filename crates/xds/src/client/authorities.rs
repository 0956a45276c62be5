//! Authorities (gRFC A47), and which of its servers each of them uses (gRFC A71).

use std::collections::BTreeMap;

use super::ids::ServerId;

/// An authority, or the names without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AuthorityId(usize);

/// One authority: its servers, and how far it has fallen back.
#[derive(Debug)]
pub(super) struct Authority {
    /// By priority; never empty.
    servers: Vec<ServerId>,
    /// How many of them are in use: all up to the active one.
    used: usize,
    /// The number of changes of `used`.
    changes: u64,
    /// The number of watches.
    pub(super) watches: usize,
}

impl Authority {
    fn new(servers: &[ServerId]) -> Self {
        Self { servers: servers.to_vec(), used: 0, changes: 0, watches: 0 }
    }

    /// The server whose resources are used: the last one that is in use.
    pub(super) fn active(&self) -> Option<ServerId> {
        self.in_use().last().copied()
    }

    /// The servers with streams, by priority.
    pub(super) fn in_use(&self) -> &[ServerId] {
        self.servers.get(..self.used).unwrap_or_default()
    }

    pub(super) fn uses(&self, server: ServerId) -> bool {
        self.in_use().contains(&server)
    }

    /// Takes the next server into use, and makes it the active one; `None` if there is no other.
    pub(super) fn fall_back(&mut self) -> Option<ServerId> {
        let next = *self.servers.get(self.used)?;
        self.use_first(self.used + 1);
        Some(next)
    }

    /// A71-13: a server has answered: those of lower priority are no longer used. Returns whether the active one changed.
    pub(super) fn fall_forward(&mut self, server: ServerId) -> bool {
        match self.in_use().iter().position(|&used| used == server) {
            Some(index) if index + 1 < self.used => {
                self.use_first(index + 1);
                true
            }
            _ => false,
        }
    }

    /// Stops to use any server.
    pub(super) fn leave(&mut self) {
        self.use_first(0);
    }

    fn use_first(&mut self, servers: usize) {
        self.used = servers;
        self.changes += 1;
    }
}

/// All authorities.
#[derive(Debug)]
pub(super) struct Authorities {
    /// The first one has the names without an authority.
    list: Vec<Authority>,
    by_name: BTreeMap<String, AuthorityId>,
}

impl Authorities {
    pub(super) fn new(default: &[ServerId], named: &BTreeMap<String, Vec<ServerId>>) -> Self {
        let list = [Authority::new(default)].into_iter();
        let list = list.chain(named.values().map(|servers| Authority::new(servers))).collect();
        let by_name = named.keys().cloned().zip((1..).map(AuthorityId)).collect();
        Self { list, by_name }
    }

    /// The authority with this name; `None` has the names without one.
    pub(super) fn find(&self, name: Option<&str>) -> Option<AuthorityId> {
        match name {
            None => Some(AuthorityId::default()),
            Some(name) => self.by_name.get(name).copied(),
        }
    }

    /// The name of an authority; `None` for the names without one.
    pub(super) fn name(&self, id: AuthorityId) -> Option<&str> {
        self.by_name.iter().find(|(_, other)| **other == id).map(|(name, _)| &**name)
    }

    pub(super) fn get(&self, id: AuthorityId) -> Option<&Authority> {
        self.list.get(id.0)
    }

    pub(super) fn get_mut(&mut self, id: AuthorityId) -> Option<&mut Authority> {
        self.list.get_mut(id.0)
    }

    /// Greater after each change of the servers that an authority uses.
    pub(super) fn revision(&self) -> u64 {
        self.list.iter().map(|authority| authority.changes).sum()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = AuthorityId> + use<> {
        (0..self.list.len()).map(AuthorityId)
    }

    /// The server whose resources the authority uses.
    pub(super) fn active(&self, id: AuthorityId) -> Option<ServerId> {
        self.get(id)?.active()
    }

    pub(super) fn uses(&self, id: AuthorityId, server: ServerId) -> bool {
        self.get(id).is_some_and(|authority| authority.uses(server))
    }

    /// Whether the authority uses the resources of this server.
    pub(super) fn is_active(&self, id: AuthorityId, server: ServerId) -> bool {
        self.active(id) == Some(server)
    }

    /// Whether a watched authority uses the server.
    pub(super) fn need(&self, server: ServerId) -> bool {
        self.list.iter().any(|authority| authority.watches > 0 && authority.uses(server))
    }
}

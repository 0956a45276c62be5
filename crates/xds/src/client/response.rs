//! Validation of a response: which of its resources are valid, and why others are not. Changes no state.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_sans_io::values::Code;

use super::api::NackMode;
use super::authorities::AuthorityId;
use super::cache::TypeCache;
use super::faults::{Faults, MAX_ERROR_BYTES};
use super::ids::ServerId;
use super::messages::{Any, DiscoveryResponse};
use super::resource_state::ResourceState;
use crate::resource::{DecodeContext, Resource, ResourceType, Update, cut, decode_update};
use crate::resource_name::{ResourceName, SCHEME};

/// The result of validating a response.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The names of the resources whose bytes equal the cached ones, in order.
    pub(super) unchanged: Vec<Arc<str>>,
    /// The others by name, including resources that were not requested.
    pub(super) outcomes: BTreeMap<Arc<str>, Judged>,
    /// A40-08: every invalid resource and its reason. If there are any, the answer is a NACK.
    pub(super) faults: Faults,
    /// Whether an invalid resource has no readable name.
    pub(super) unnamed: bool,
    /// Whether absence from the response means deletion. Not if one of its resources has no readable name, since that
    /// may be the absent one; nor if nothing in the response is used.
    pub(super) absence_is_deletion: bool,
}

/// One resource.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) outcome: ResourceOutcome,
    /// As received; empty if it was not.
    pub(super) raw: Any,
}

/// The outcome for one resource.
#[derive(Debug)]
pub(super) enum ResourceOutcome {
    /// A wrapper without a resource: the server still has what it sent before (the time to live starts again).
    Heartbeat,
    /// A valid resource.
    Valid(Resource),
    /// Valid, but not kept, because it was not requested.
    Unasked,
    /// Invalid, with the reason.
    Invalid(Arc<str>),
    /// The server reported that it cannot send it (gRFC A88, xRFC TP3).
    Reported { code: Code, message: String },
}

/// The parameters of validation.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) resource_type: ResourceType,
    pub(super) cached: Option<&'a TypeCache>,
    /// A47-20: whether the server's resources are used for the authority; all others were not requested from it.
    pub(super) serves: &'a dyn Fn(AuthorityId) -> bool,
    /// Whether the same bytes of the server that sent a cached resource have the same meaning (A81).
    pub(super) decodes_alike: &'a dyn Fn(ServerId) -> bool,
    pub(super) cx: &'a DecodeContext,
    pub(super) nack_mode: NackMode,
}

impl Judge<'_> {
    /// A40-07, A40-10: continues after an invalid resource, whatever the violation.
    pub(super) fn judge(&self, response: DiscoveryResponse) -> Verdict {
        let mut verdict = Verdict {
            absence_is_deletion: self.resource_type.all_resources_required_in_sotw(),
            ..Verdict::default()
        };
        // Typically one of a thousand resources has changed. Lists the places of the others only, because there may be
        // very many resources without content.
        let mut resources = response.resources;
        let mut others = Vec::new();
        for (i, any) in resources.iter().enumerate() {
            match self.unchanged(any) {
                Some(name) => verdict.unchanged.push(name),
                None => others.push(i),
            }
        }
        verdict.unchanged.sort_unstable();
        verdict.unchanged.dedup();
        for i in others {
            if let Some(any) = resources.get_mut(i).map(std::mem::take) {
                self.resource(i, any, &mut verdict);
            }
        }
        verdict.drop_contradicted();
        if self.cx.gates.data_error_handling {
            for (i, error) in response.resource_errors.into_iter().enumerate() {
                let name = error.resource_name.map(|name| name.name).unwrap_or_default();
                let status = error.error_detail.unwrap_or_default();
                if name.is_empty() || status.code == 0 {
                    let why = "must have a name and a status other than OK";
                    verdict.faults.push(format_args!("resource_errors[{i}]: {why}"));
                    continue;
                }
                match self.normalized(name) {
                    Err(why) => verdict.faults.push(format_args!("resource_errors[{i}]: {why}")),
                    Ok(name) => {
                        let outcome = ResourceOutcome::Reported {
                            code: Code::from_i32(status.code),
                            message: status.message,
                        };
                        let reported = Judged { outcome, raw: Any::default() };
                        if !verdict.is_unchanged(&name) {
                            verdict.outcomes.entry(name).or_insert(reported);
                        }
                    }
                }
            }
        }
        if self.nack_mode == NackMode::WholeResponse && !verdict.faults.is_empty() {
            verdict.reject_all();
        }
        verdict
    }

    /// The name of the resource, if its bytes equal the cached ones.
    fn unchanged(&self, any: &Any) -> Option<Arc<str>> {
        let is_same = |state: &ResourceState| {
            (self.serves)(state.authority) && state.source().is_some_and(self.decodes_alike)
        };
        self.cached?.name_of(any, is_same)
    }

    fn resource(&self, i: usize, any: Any, verdict: &mut Verdict) {
        let known = |name: &str| {
            let normal = name.starts_with(SCHEME).then(|| self.normalized(name.to_owned()).ok()).flatten();
            self.requested(normal.as_deref().unwrap_or(name)).and_then(ResourceState::resource)
        };
        let update = decode_update(self.resource_type, any.type_url(), &any.value, self.cx, &known);
        let (name, outcome) = match update {
            Update::Heartbeat(name) => match self.normalized(name) {
                Ok(name) => (name, ResourceOutcome::Heartbeat),
                Err(why) => return verdict.faults.push(format_args!("resource {i}: {why}")),
            },
            Update::Resource(decoded) => {
                let outcome = match decoded.resource {
                    Ok(resource) => ResourceOutcome::Valid(resource),
                    Err(violations) => {
                        ResourceOutcome::Invalid(cut(violations.to_string(), MAX_ERROR_BYTES).into())
                    }
                };
                match decoded.name.map(|name| self.normalized(name)) {
                    Some(Ok(name)) => (name, outcome),
                    Some(Err(why)) => {
                        return verdict.faults.push(format_args!("resource {i}: {why}"));
                    }
                    None => return verdict.unnamed(i, outcome),
                }
            }
        };
        let is_heartbeat = matches!(outcome, ResourceOutcome::Heartbeat);
        let known = verdict.is_unchanged(&name);
        let twice = "occurs twice in the response, with different content";
        match verdict.outcomes.get_mut(&name) {
            // A heartbeat adds nothing to the resource itself.
            Some(_) if is_heartbeat => {}
            None if is_heartbeat && known => {}
            // A duplicate is harmless, and if invalid it is listed once.
            Some(first) if first.raw == any => {}
            Some(first) if !matches!(first.outcome, ResourceOutcome::Heartbeat) => {
                verdict.faults.push(format_args!("resource {i} ({name}): {twice}"));
                first.outcome = ResourceOutcome::Invalid(twice.into());
            }
            _ => {
                if let ResourceOutcome::Invalid(why) = &outcome {
                    verdict.faults.push(format_args!("resource {i} ({name}): {why}"));
                }
                let mut outcome = self.worth_keeping(&name, outcome);
                if known {
                    verdict.faults.push(format_args!("resource {i} ({name}): {twice}"));
                    outcome = ResourceOutcome::Invalid(twice.into());
                }
                verdict.outcomes.insert(name, Judged { outcome, raw: any });
            }
        }
    }

    /// The resource, if it was requested from this server.
    fn requested(&self, name: &str) -> Option<&ResourceState> {
        self.cached?.get(name).filter(|state| (self.serves)(state.authority))
    }

    /// A47-21: the name under which the resource is cached.
    fn normalized(&self, name: String) -> Result<Arc<str>, String> {
        ResourceName::parse(&name.into(), self.resource_type).map(|name| name.name)
    }

    /// Drops the parts of an outcome that matter only for requested resources.
    fn worth_keeping(&self, name: &str, outcome: ResourceOutcome) -> ResourceOutcome {
        let asked = self.requested(name).is_some();
        match outcome {
            ResourceOutcome::Valid(_) if !asked => ResourceOutcome::Unasked,
            ResourceOutcome::Invalid(_) if !asked => ResourceOutcome::Invalid(Arc::default()),
            outcome => outcome,
        }
    }
}

impl Verdict {
    /// The verdict on a response that is not decoded.
    pub(super) fn unread(why: &str) -> Self {
        let mut verdict = Self { unnamed: true, ..Self::default() };
        verdict.faults.push(format_args!("{why}"));
        verdict
    }

    /// Records a resource without a readable name.
    fn unnamed(&mut self, i: usize, outcome: ResourceOutcome) {
        let why = if let ResourceOutcome::Invalid(why) = &outcome { why } else { "has no name" };
        self.faults.push(format_args!("resource {i}: {why}"));
        self.unnamed = true;
        self.absence_is_deletion = false;
    }

    fn is_unchanged(&self, name: &Arc<str>) -> bool {
        self.unchanged.binary_search(name).is_ok()
    }

    /// A resource that is also in the response with other content is not unchanged.
    fn drop_contradicted(&mut self) {
        let Self { unchanged, outcomes, .. } = self;
        if outcomes.keys().any(|name| unchanged.binary_search(name).is_ok()) {
            unchanged.retain(|name| !outcomes.contains_key(name));
        }
    }

    /// A40-11, A40-13: the error applies to every resource.
    fn reject_all(&mut self) {
        // All of them share one text.
        let why = format!("the whole response is rejected: {}", self.faults.text());
        let why = Arc::<str>::from(cut(why, MAX_ERROR_BYTES));
        for Judged { outcome, .. } in self.outcomes.values_mut() {
            if matches!(outcome, ResourceOutcome::Valid(_) | ResourceOutcome::Unasked) {
                *outcome = ResourceOutcome::Invalid(Arc::clone(&why));
            }
        }
        let rejected = || Judged { outcome: ResourceOutcome::Invalid(Arc::clone(&why)), raw: Any::default() };
        self.outcomes.extend(std::mem::take(&mut self.unchanged).into_iter().map(|name| (name, rejected())));
        self.absence_is_deletion = false;
    }
}

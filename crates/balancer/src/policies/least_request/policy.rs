//! The policy: counts the calls of its endpoints, and builds the picker that compares them.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_sans_io::Time;

use super::config::{LeastRequestConfig, NAME};
use super::in_flight::InFlight;
use super::picker::LeastRequestPicker;
use crate::api::{ChildIndex, Cx, Detail, Picker, PolicyView, SubchannelHandle, SubchannelSpec};
use crate::petiole::{Applied, EndpointKey, Member, Spread, SpreadPolicy};

/// The policy `least_request_experimental`.
pub(super) type LeastRequest = SpreadPolicy<LeastLoaded>;

/// The counters of the endpoints.
#[derive(Default)]
pub(super) struct LeastLoaded {
    samples: u32,
    // A48-09: of this policy alone, even if others use the same connections; A61: per endpoint, not per address.
    in_flight: BTreeMap<ChildIndex, Arc<InFlight>>,
}

impl Spread for LeastLoaded {
    const NAME: &'static str = NAME;
    type Config = LeastRequestConfig;
    type Picker = LeastRequestPicker;

    fn configure(&mut self, config: &LeastRequestConfig, _: &mut dyn Cx) -> Applied {
        let samples = std::mem::replace(&mut self.samples, config.samples());
        if samples == self.samples { Applied::SamePicker } else { Applied::NewPicker }
    }

    // A48-10: the counters live as long as their endpoints.
    fn updated(&mut self, members: &[Member], _: &mut dyn Cx) -> Applied {
        let mut old = std::mem::take(&mut self.in_flight);
        let kept = members.iter().filter_map(|member| old.remove_entry(&member.index()));
        self.in_flight = kept.collect();
        Applied::SamePicker
    }

    fn create_subchannel(
        &mut self,
        endpoint: ChildIndex,
        mut spec: SubchannelSpec,
        cx: &mut dyn Cx,
    ) -> SubchannelHandle {
        let in_flight = self.in_flight.entry(endpoint).or_default();
        spec.trackers.add(Arc::clone(in_flight) as _);
        cx.create_subchannel(spec)
    }

    fn picker(
        &mut self,
        ready: &[&Member],
        children: Vec<Arc<dyn Picker>>,
        _: &mut dyn Cx,
    ) -> Arc<LeastRequestPicker> {
        let counter = |member: &&Member| Arc::clone(self.in_flight.entry(member.index()).or_default());
        let in_flight = ready.iter().map(counter).collect();
        LeastRequestPicker::new(children, in_flight, self.samples)
    }

    fn describe(&self, _: Time, members: &[Member], node: &mut PolicyView) {
        let counted = members.iter().filter_map(|member| {
            let count = self.in_flight.get(&member.index())?.count();
            let of = EndpointKey::of(member.endpoint()).to_string();
            (count > 0).then(|| Detail::new("in_flight", of).with("requests", count))
        });
        node.details.extend(counted);
    }
}

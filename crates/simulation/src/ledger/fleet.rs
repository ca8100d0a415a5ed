//! Checks on a fleet: each Cluster has a ledger of its own, which knows its objects and the calls of its callers alone,
//! so that a write for another Cluster's caller is one that nobody has asked for. These checks are about what crosses
//! Clusters in answers, and about a Cluster that isn't served any more.

use proto::NodeGroupNodesResponse;
use sandbox::api::ChangeKind;
use serde_json::Value;
use tonic::Code;

use super::{
    Answered, Check, Ledger,
    answers::lasting,
    calls::{Asked, Request, decode},
    watches::Kind,
};
use crate::{
    entropy::{Nanos, SECOND},
    setup::{Place, SERVED},
};

/// The longest time from the arrival of an event to the first call or write that follows it.
const NOTICED: Nanos = SECOND / 2;
/// The time after a Cluster's return in which copies fill its index.
const RETURNS: Nanos = 130 * SECOND;

#[derive(Debug)]
pub(super) struct Standing {
    place: Place,
    /// The revision at which it was opted out or deleted, and the time since when, unless it is served.
    out: Option<(u64, Nanos)>,
    /// The time of its last return.
    returned: Option<Nanos>,
    /// The answers to reads and to writes of a group that it doesn't have, with a word for the group's id.
    not_found: [Option<String>; 2],
}

impl Standing {
    pub(super) fn new(place: Place) -> Self {
        Self { place, out: None, returned: None, not_found: [None, None] }
    }

    /// Returns true if an object of Cluster API belongs to the Cluster, or is the Cluster.
    pub(super) fn has(&self, object: &Value) -> bool {
        let cluster = object["spec"]["clusterName"].as_str().or(object["metadata"]["name"].as_str());
        object["metadata"]["namespace"] == self.place.namespace && cluster == Some(self.place.name)
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.place.name == name
    }

    fn has_been_served_for(&self, time: Nanos, at: Nanos) -> bool {
        self.out.is_none() && self.returned.is_none_or(|returned| returned + time <= at)
    }
}

impl Ledger {
    pub(super) fn is_of_fleet(&self) -> bool {
        self.standing.is_some()
    }

    /// Returns true if the Cluster wasn't served at a time, or until shortly before it: its copies begin anew.
    pub(super) fn is_out_lately(&self, at: Nanos) -> bool {
        !self.has_been_served_for(RETURNS, at)
    }

    /// Returns true if the Cluster has been served for a time until another one, as one that is alone always is.
    pub(super) fn has_been_served_for(&self, time: Nanos, at: Nanos) -> bool {
        self.standing.as_ref().is_none_or(|standing| standing.has_been_served_for(time, at))
    }

    pub(super) fn cluster(&mut self, change: ChangeKind, object: &Value) {
        let (now, revision) = (self.now, self.revision);
        let Some(standing) = &mut self.standing else { return };
        let is_served = change != ChangeKind::Deleted && object["metadata"]["labels"][SERVED.0] == SERVED.1;
        match (is_served, standing.out) {
            (true, Some(_)) => {
                standing.out = None;
                standing.returned = Some(now);
            }
            (false, None) => standing.out = Some((revision, now)),
            (true, None) | (false, Some(_)) => return,
        }
        // An index begins and ends.
        self.last_groups.clear();
        self.last_fresh.clear();
        self.own_sizes.clear();
        self.own_lower_sizes.clear();
        self.denied.clear();
    }

    /// Returns true if a copy has taken in by a time that the Cluster isn't served, which is still so.
    fn knows_it_is_out(&self, copy: usize, at: Nanos) -> bool {
        let Some((revision, _)) = self.standing.as_ref().and_then(|standing| standing.out) else { return false };
        let at = at.saturating_sub(NOTICED);
        // One that stood still reads only now what has arrived meanwhile.
        let stood = self.thawed.get(&copy).is_some_and(|thawed| *thawed >= at);
        !stood && self.has_seen(copy, Kind::Clusters, revision, at)
    }

    /// Checks a write of a copy that begins something: a mark, a deletion, or a size other than for those. A copy that
    /// knows that the Cluster isn't served ends what it has begun, and nothing else.
    pub(super) fn begins(&mut self, copy: usize, what: &str, of: &str) {
        if self.knows_it_is_out(copy, self.sent) {
            let what = format!("copy {copy} knows that the Cluster isn't served, and writes {what} of {of}");
            self.find(Check::OptedOut, what);
        }
    }

    pub(super) fn is_of_caller(&mut self, asked: &Asked, answered: &Answered<'_>) {
        let Some(code) = answered.code.filter(|_| self.is_of_fleet()) else { return };
        let copy = asked.copy;
        let (group, is_write) = match &asked.request {
            Request::Increase { group, .. } | Request::Decrease { group, .. } | Request::Delete { group, .. } => {
                (Some(group), true)
            }
            Request::TargetSize { group } | Request::Instances { group } | Request::Template { group } => {
                (Some(group), false)
            }
            Request::Other(_) => (None, false),
        };
        if (is_write || asked.request == Request::Other("Refresh"))
            && code == Code::Ok
            && self.knows_it_is_out(copy, asked.at)
        {
            let what = format!("copy {copy} knows that the Cluster isn't served, and answers {:?}", asked.request);
            self.find(Check::OptedOut, what);
        }
        let Some(group) = group.filter(|group| !self.groups.contains_key(*group)) else { return };
        let may_be = matches!(code, Code::NotFound | Code::Unavailable | Code::PermissionDenied);
        if !may_be {
            let what = format!("copy {copy} answers {code:?} about {group}, which isn't of the caller's Cluster");
            self.find(Check::Crossing, what);
        }
        let text = answered.text.replace(group.as_str(), "GROUP");
        if code == Code::NotFound
            && let Some(standing) = &mut self.standing
        {
            let known = standing.not_found[usize::from(is_write)].get_or_insert_with(|| text.clone());
            if *known != text {
                let what =
                    format!("copy {copy} answers {text:?} about a group of no one, or of another: also {known:?}");
                self.find(Check::Crossing, what);
            }
        }
    }

    /// Checks the groups that an answer names.
    pub(super) fn are_of_caller<'a>(&mut self, copy: usize, mut ids: impl Iterator<Item = &'a String>) {
        if self.is_of_fleet()
            && let Some(id) = ids.find(|id| !id.is_empty() && !self.groups.contains_key(*id))
        {
            self.find(Check::Crossing, format!("copy {copy} names {id}, which isn't of the caller's Cluster"));
        }
    }

    /// Returns true if an instance is or was a Machine of the Cluster.
    fn has_had(&self, id: &str) -> bool {
        let name = lasting(id).split_once('_').map(|(_, name)| name);
        let is_it = |machine: &super::Machine| machine.provider_id == id || name == Some(machine.name.as_str());
        self.machines.values().any(is_it)
    }
}

/// The ledgers of a world: one, or one for each Cluster of a fleet.
pub(crate) struct Ledgers {
    all: Vec<Ledger>,
}

impl Ledgers {
    /// Creates the ledger of a world with one Cluster.
    pub(crate) fn of_one() -> Self {
        Self { all: vec![Ledger::default()] }
    }

    pub(crate) fn of_fleet(places: &[Place]) -> Self {
        let ledger = |place: &Place| Ledger { standing: Some(Standing::new(*place)), ..Ledger::default() };
        Self { all: places.iter().map(ledger).collect() }
    }

    pub(crate) fn of(&self, cluster: usize) -> &Ledger {
        &self.all[cluster]
    }

    pub(crate) fn of_mut(&mut self, cluster: usize) -> &mut Ledger {
        &mut self.all[cluster]
    }

    pub(crate) fn each(&mut self, act: impl FnMut(&mut Ledger)) {
        self.all.iter_mut().for_each(act);
    }

    /// Does something with the ledgers that an API concerns: that of a workload cluster has one.
    pub(crate) fn each_of_api(&mut self, api: crate::network::ApiId, act: impl FnMut(&mut Ledger)) {
        match api.checked_sub(1) {
            None => self.each(act),
            Some(cluster) => self.all.get_mut(cluster).into_iter().for_each(act),
        }
    }

    /// Records a finding that is of no single Cluster.
    pub(crate) fn find(&mut self, check: Check, what: impl Into<String>) {
        self.all[0].find(check, what);
    }

    pub(crate) fn has_findings(&self) -> bool {
        self.all.iter().any(Ledger::has_findings)
    }

    /// Takes the findings; those of a fleet name their Cluster.
    pub(crate) fn findings(&mut self) -> Vec<super::Finding> {
        let mut findings = Vec::new();
        for ledger in &mut self.all {
            let cluster = ledger.standing.as_ref().map(|it| format!("{}/{}: ", it.place.namespace, it.place.name));
            for mut finding in ledger.findings() {
                finding.what.insert_str(0, cluster.as_deref().unwrap_or_default());
                findings.push(finding);
            }
        }
        findings
    }

    /// Records the end of a call of a Cluster's caller.
    pub(crate) fn answered(&mut self, cluster: usize, number: u64, answered: &Answered<'_>) {
        let asked = self.all[cluster].asked.get(&number).map(|asked| (asked.copy, asked.request.clone()));
        if let Some((copy, Request::Instances { group })) = asked.filter(|_| answered.code == Some(Code::Ok)) {
            let answer: NodeGroupNodesResponse = decode(answered.message);
            let others =
                || self.all.iter().enumerate().filter(|(other, _)| *other != cluster).map(|(_, ledger)| ledger);
            let is_foreign = |id: &str| !self.all[cluster].has_had(id) && others().any(|ledger| ledger.has_had(id));
            if let Some(instance) = answer.instances.iter().find(|instance| is_foreign(&instance.id)) {
                let what = format!("copy {copy} names {} among the instances of {group}", instance.id);
                self.all[cluster].find(Check::Crossing, what);
            }
        }
        self.all[cluster].answered(number, answered);
    }
}

//! Fleets over a minimal API server, with what became of their Clusters.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use shared_informer::Settings;
use testkit::Wait;
use tokio::runtime::Handle;

use super::{PATIENCE, fake::*, scalable};
use crate::{Fleet, FleetOptions, Management, Serve, Tenants, WorkloadCluster};
use connect::NodeAccess;
use index::objects;
use service::listen::Checks as _;

/// The time for which a namespace may be forbidden. The real clock measures it, which these tests don't wait for.
const MAX_STALENESS: Duration = Duration::ZERO;

/// The Clusters that have joined, with what became of them since.
#[derive(Default)]
struct Joined {
    members: Mutex<BTreeMap<String, WorkloadCluster>>,
    events: Mutex<Vec<String>>,
}

impl Joined {
    fn note(&self, event: &str, member: &WorkloadCluster) {
        self.events.lock().push(format!("{event} {}", member.cluster().unwrap()));
    }
}

impl Tenants for Joined {
    fn joined(&self, member: &WorkloadCluster) {
        self.note("joined", member);
        self.members.lock().insert(member.cluster().unwrap().to_string(), member.clone());
    }

    fn left(&self, member: &WorkloadCluster) {
        assert!(member.left().is_some());
        self.note("left", member);
    }

    fn dropped(&self, member: &WorkloadCluster) {
        self.note("dropped", member);
    }
}

pub(super) struct World {
    pub(super) fleet: Fleet,
    joined: Arc<Joined>,
}

impl World {
    pub(super) fn new(api: &FakeApi, namespaces: Option<&[&str]>) -> Self {
        Self::reading(api, namespaces, NodeAccess::default())
    }

    /// Returns a fleet that reads Nodes by these credentials.
    pub(super) fn reading(api: &FakeApi, namespaces: Option<&[&str]>, nodes: NodeAccess) -> Self {
        Self::with(api, namespaces, nodes, &Settings::default())
    }

    /// Returns a fleet with these settings of its informers, apart from their pauses.
    pub(super) fn with(api: &FakeApi, namespaces: Option<&[&str]>, nodes: NodeAccess, informers: &Settings) -> Self {
        let informers = Settings { backoff_min: Duration::from_millis(50), ..informers.clone() };
        let (rules, runtime) = (objects::rules(), Handle::current());
        let namespaces = namespaces.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let serve = Serve::Selected { selector: "autoscaler=fleet".parse().unwrap(), namespaces, nodes };
        let options = FleetOptions { informers, ..FleetOptions::of_many(rules, MAX_STALENESS) };
        let management = Management::start(api.clients(), options.management(), &runtime);
        let joined = Arc::<Joined>::default();
        let fleet = Fleet::start(management, serve, options, Arc::clone(&joined) as _, &runtime);
        Self { fleet, joined }
    }

    pub(super) async fn until(&self, reason: &str, condition: impl Fn(&Self) -> bool) {
        let state = || format!("{:?}, {:?}", self.fleet.checks(), self.joined.events.lock());
        let wait = Wait::new(reason).within(PATIENCE).every(Duration::from_millis(20)).showing(&state);
        wait.condition(|| condition(self)).await;
    }

    pub(super) fn member(&self, cluster: &str) -> Option<WorkloadCluster> {
        self.joined.members.lock().get(cluster).cloned()
    }

    /// Returns the reason for which a Cluster's Refresh fails; empty if it doesn't.
    pub(super) fn problem(&self, cluster: &str) -> String {
        self.member(cluster).and_then(|member| member.check_fresh().err()).unwrap_or_default()
    }

    /// Waits until these Clusters, and no others, are served with exactly these groups.
    pub(super) async fn until_served(&self, expected: &[(&str, &[&str])]) {
        let served = |world: &Self| {
            let members = world.joined.members.lock().clone();
            let served = members.into_iter().filter(|(_, member)| member.left().is_none());
            served.map(|(cluster, member)| (cluster, groups(&member))).collect::<BTreeMap<_, _>>()
        };
        let owned = |groups: &[&str]| groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>();
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(cluster, groups)| ((*cluster).to_owned(), owned(groups))).collect();
        self.until(&format!("{expected:?}"), |world| served(world) == expected).await;
    }

    /// Returns true if something was noted of a Cluster since the last [`World::events`].
    pub(super) fn noted(&self, event: &str) -> bool {
        self.joined.events.lock().iter().any(|noted| noted == event)
    }

    /// Returns what was noted since the last time.
    pub(super) fn events(&self) -> Vec<String> {
        std::mem::take(&mut *self.joined.events.lock())
    }

    pub(super) async fn shutdown(self) {
        self.fleet.shutdown().await;
    }
}

pub(super) fn groups(member: &WorkloadCluster) -> Vec<String> {
    member.index().refresh();
    member.index().groups().iter().map(|group| group.text.to_string()).collect()
}

pub(super) fn labelled() -> Value {
    json!({"metadata": {"labels": {"autoscaler": "fleet"}}})
}

pub(super) fn group_of(cluster: &str) -> Value {
    scalable(&json!({"spec": {"clusterName": cluster}}))
}

pub(super) fn machine_of(cluster: &str) -> Value {
    json!({"spec": {"clusterName": cluster}})
}

/// Returns an API with the Clusters `stage` and `other`, which are selected, and `own`, which isn't; each has a group.
pub(super) fn three() -> FakeApi {
    let api = FakeApi::with_capi();
    for (name, cluster) in [("stage", labelled()), ("other", labelled()), ("own", json!({}))] {
        api.put("clusters", name, &cluster);
        api.put("machinedeployments", &format!("{name}-workers"), &group_of(name));
        api.put("machines", &format!("{name}-a"), &machine_of(name));
    }
    api
}

pub(super) const STAGE: (&str, &[&str]) = ("team-a/stage", &["MachineDeployment/team-a/stage-workers"]);
pub(super) const OTHER: (&str, &[&str]) = ("team-a/other", &["MachineDeployment/team-a/other-workers"]);
pub(super) const OWN: (&str, &[&str]) = ("team-a/own", &["MachineDeployment/team-a/own-workers"]);

//! Checks on the ConfigMaps in which copies remember Nodes: they keep to their bounds, no copy loses an entry or makes
//! one larger, and none is larger than the smallest Node that it is about.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};
use k8s_pb::api::core::v1::Node;
use prost::Message as _;
use proto::NodeGroupTemplateNodeInfoResponse;
use sandbox::api::{Api, ChangeKind, Resource, Selection};
use serde_json::Value;

use super::{Author, Check, Ledger, calls::Asked, calls::decode, watches::TAKEN_UP};
use crate::entropy::{Nanos, SECOND};

/// The maximum number of entries, and of the bytes of their keys and values.
const MOST: (usize, usize) = (500, 700 << 10);
/// The time after which a Node that has been ready, and its Machine, must be remembered: two writes that are a minute
/// apart, one of which another copy was faster with.
const REMEMBERED_WITHIN: Nanos = 200 * SECOND;

/// The time for which a Node must be Ready until it shows all devices.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// The resource of device plugins.
const DEVICE: &str = "example.com/device";
/// The annotation by which a group states its Nodes' memory.
const STATED: &str = "capacity.cluster-autoscaler.kubernetes.io/memory";

/// What is known of Nodes and of what is remembered of them.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The Nodes by name, the deleted ones too: the smallest memory each has had.
    nodes: HashMap<String, Known>,
    /// The entries of each namespace's ConfigMap, by key.
    entries: BTreeMap<String, BTreeMap<String, Entry>>,
    /// The time of the last change of a template.
    templates_changed: Nanos,
    /// True once a template has another spec than at the start.
    templates_differ: bool,
    /// The smallest of all Nodes that must be remembered, by the namespace and name of their template. A template that
    /// changes has none yet.
    smallest: BTreeMap<(String, String), Amounts>,
}

#[derive(Debug)]
struct Known {
    memory: u64,
    ready_since: Option<Nanos>,
    /// The devices, once it shows all of them.
    devices: Option<u64>,
    /// The copy that has seen it Ready, and since when; the same for its devices.
    seen: [Option<(usize, Nanos)>; 2],
}

/// The amounts that a Pod may use on a Node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Amounts {
    memory: u64,
    /// `None` if they aren't known.
    devices: Option<u64>,
}

impl Amounts {
    /// Returns true if these are of more memory than so many bytes.
    pub(crate) fn exceeds(self, memory: u64) -> bool {
        self.memory > memory
    }

    /// Returns the amounts of a template that a copy has answered.
    pub(crate) fn of(answer: &NodeGroupTemplateNodeInfoResponse) -> Option<Self> {
        let allocatable = Node::decode(&*answer.node_bytes).ok()?.status?.allocatable;
        let amount = |name: &str| bytes(allocatable.get(name)?.string.as_deref()?);
        Some(Self { memory: amount("memory")?, devices: Some(amount(DEVICE).unwrap_or_default()) })
    }

    fn min(self, other: Self) -> Self {
        let devices = [self.devices, other.devices].into_iter().flatten().min();
        Self { memory: self.memory.min(other.memory), devices }
    }
}

/// An entry, as far as it is checked.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry {
    node: String,
    cluster: String,
    group: String,
    memory: u64,
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        let entry: Value = serde_json::from_str(text).ok()?;
        Some(Self {
            node: entry["node"].as_str()?.to_owned(),
            cluster: entry["cluster"].as_str()?.to_owned(),
            group: entry["group"].as_str()?.to_owned(),
            memory: bytes(entry["allocatable"]["memory"].as_str()?)?,
        })
    }
}

fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let unit = ["", "Ki", "Mi", "Gi"].iter().position(|unit| *unit == suffix)?;
    Some(number.parse::<u64>().ok()? << (10 * unit))
}

pub(super) fn states_memory(group: &Value) -> bool {
    !group["metadata"]["annotations"][STATED].is_null()
}

impl Ledger {
    pub(super) fn remembers_node(&mut self, kind: ChangeKind, node: &Value) {
        let Some(name) = node["metadata"]["name"].as_str() else { return };
        let Some(memory) = node["status"]["allocatable"]["memory"].as_str().and_then(bytes) else { return };
        let conditions = node["status"]["conditions"].as_array();
        let is_ready = kind != ChangeKind::Deleted
            && conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"));
        let new = Known { memory, ready_since: None, devices: None, seen: [None; 2] };
        let known = self.memory.nodes.entry(name.to_owned()).or_insert(new);
        known.memory = known.memory.min(memory);
        known.ready_since = if is_ready { known.ready_since.or(Some(self.now)) } else { None };
        known.devices = if is_ready && is_settled(node) {
            // While a plugin restarts there are none.
            let devices = node["status"]["allocatable"][DEVICE].as_str().map_or(Some(0), bytes);
            let restarts = devices == Some(0) && node["status"]["capacity"][DEVICE].is_string();
            devices.filter(|_| !restarts)
        } else {
            None
        };
        known.seen = [known.seen[0].filter(|_| is_ready), known.seen[1].filter(|_| known.devices.is_some())];
    }

    /// Notes the Nodes that copies have seen for so long that they must be remembered.
    pub(super) fn look_at_memory(&mut self) {
        // Copies tell by their clocks which Nodes are older than a change of their template.
        let is_unclear = self.clocks_jump && self.memory.templates_changed > SECOND;
        if self.memory.entries.is_empty() || is_unclear {
            return;
        }
        let copies: Vec<_> = self.last_fresh.keys().copied().filter(|copy| self.read_only != Some(*copy)).collect();
        let mut nodes = std::mem::take(&mut self.memory.nodes);
        for machine in self.machines.values().filter(|machine| !machine.is_deleting && !machine.is_gone) {
            let known = machine.node.as_ref().and_then(|name| nodes.get_mut(name));
            let Some(known) = known.filter(|known| known.ready_since.is_some()) else { continue };
            let Some(template) = self.template_of(&machine.group).filter(|_| self.is_of_templates(machine)) else {
                continue;
            };
            let is_there = [true, known.devices.is_some()];
            for (seen, _) in known.seen.iter_mut().zip(is_there).filter(|(_, is_there)| *is_there) {
                *seen = seen.filter(|(copy, since)| self.has_worked_since(*copy, *since));
                let sees = |copy: &&usize| {
                    self.was_there(**copy, machine.created)
                        && self.is_well(**copy)
                        && self.knows(**copy, &machine.group, self.now.saturating_sub(TAKEN_UP))
                };
                *seen = seen.or_else(|| Some((*copies.iter().find(sees)?, self.now)));
            }
            let is_long = |seen: Option<(usize, Nanos)>| {
                seen.is_some_and(|(_, since)| self.now.saturating_sub(since) >= REMEMBERED_WITHIN)
            };
            if is_long(known.seen[0]) {
                let amounts =
                    Amounts { memory: known.memory, devices: known.devices.filter(|_| is_long(known.seen[1])) };
                let smallest = self.memory.smallest.entry(template).or_insert(amounts);
                *smallest = smallest.min(amounts);
            }
        }
        self.memory.nodes = nodes;
    }

    /// Returns true if a copy ran at a time. One that starts later can't know whether a Node is older than the last change
    /// of its template.
    fn was_there(&self, copy: usize, at: Nanos) -> bool {
        self.last_killed.get(&copy).is_none_or(|killed| *killed + REMEMBERED_WITHIN < at)
    }

    fn has_worked_since(&self, copy: usize, since: Nanos) -> bool {
        self.is_well(copy) && self.last_killed.get(&copy).is_none_or(|killed| *killed < since)
    }

    /// Returns true if a Machine was made from the templates as they are now.
    fn is_of_templates(&self, machine: &super::Machine) -> bool {
        machine.created > self.memory.templates_changed + SECOND
    }

    /// Checks a template that a copy has answered to Cluster Autoscaler.
    pub(super) fn template_answered(&mut self, asked: &Asked, group: &str, message: &[u8]) {
        let is_new = self.last_killed.get(&asked.copy).is_some_and(|killed| killed + REMEMBERED_WITHIN > asked.at);
        let Some(amounts) = Amounts::of(&decode(message)).filter(|_| !is_new && self.is_well(asked.copy)) else {
            return;
        };
        if let Some(what) = self.is_too_large(group, amounts) {
            self.find(Check::Remembered, format!("copy {} answers {what}", asked.copy));
        }
    }

    /// Returns what is wrong with the template of a group: without Nodes it is no larger than the smallest one of the
    /// same infrastructure template, unless the group says so itself.
    pub(crate) fn is_too_large(&self, id: &str, amounts: Amounts) -> Option<String> {
        let group = self.groups.get(id).filter(|group| !group.is_gone)?;
        let smallest = self.memory.smallest.get(&self.template_of(id)?)?;
        let is_large = (!group.states_memory && amounts.memory > smallest.memory)
            || smallest.devices.is_some_and(|devices| amounts.devices.is_some_and(|it| it > devices));
        let has_nodes = || self.machines.values().any(|machine| machine.group == id && !machine.is_gone);
        (is_large && !has_nodes()).then(|| format!("{amounts:?} for {id}, and a Node of its template had {smallest:?}"))
    }

    /// Returns the least memory that is remembered of Nodes of a group's template, unless templates have changed.
    pub(crate) fn remembered(&self, group: &str) -> Option<u64> {
        let template = self.template_of(group)?;
        let entries = self.memory.entries.values().flatten().map(|(_, entry)| entry);
        let of = entries.filter(|entry| self.template_of(&entry.group).as_ref() == Some(&template));
        of.map(|entry| entry.memory).min().filter(|_| !self.memory.templates_differ)
    }

    /// Returns true if the template of a Node's Machine has brought other Nodes, which may have been smaller.
    pub(crate) fn has_siblings(&self, provider_id: &str) -> bool {
        let machine = self.machines.values().find(|machine| machine.provider_id == provider_id);
        let Some(template) = machine.and_then(|machine| self.template_of(&machine.group)) else { return false };
        let is_one = |machine: &&super::Machine| {
            machine.node.is_some() && self.template_of(&machine.group).as_ref() == Some(&template)
        };
        self.machines.values().filter(is_one).count() > 1
    }

    /// Returns the namespace and name of a group's infrastructure template.
    fn template_of(&self, group: &str) -> Option<(String, String)> {
        let (_, namespace, _) = split(group).filter(|(kind, ..)| *kind != "MachinePool")?;
        let name = &self.groups.get(group)?.template["spec"]["infrastructureRef"]["name"];
        Some((namespace.to_owned(), name.as_str()?.to_owned()))
    }

    /// Checks the changes of ConfigMaps and templates since a revision.
    pub(super) fn memory(&mut self, api: &Api, since: u64, author: Author) {
        let changes = |resource: &Resource| api.changes(resource, &Selection::default(), since).unwrap_or_default();
        let templates = Resource::new("infrastructure.cluster.x-k8s.io", "v1beta2", "cloudmachinetemplates");
        for event in changes(&templates) {
            self.memory.templates_changed = self.now;
            let of = |field: &str| event.object["metadata"][field].as_str().unwrap_or_default().to_owned();
            self.memory.templates_differ |= !event.object["spec"]["template"]["spec"]["image"].is_null();
            self.memory.smallest.remove(&(of("namespace"), of("name")));
        }
        for event in changes(&Resource::core("configmaps")) {
            let namespace = event.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let data = event.object["data"].as_object().into_iter().flatten();
            let data: Vec<_> = data.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect();
            let size = (data.len(), data.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>());
            let entries: BTreeMap<_, _> =
                data.iter().filter_map(|(key, value)| Some(((*key).to_owned(), Entry::parse(value)?))).collect();
            let before = self.memory.entries.insert(namespace, entries.clone()).unwrap_or_default();
            if let Author::Copy(copy) = author {
                self.remembers(copy, size, &before, &entries);
            }
        }
    }

    fn remembers(
        &mut self,
        copy: usize,
        size: (usize, usize),
        before: &BTreeMap<String, Entry>,
        entries: &BTreeMap<String, Entry>,
    ) {
        let mut found = Vec::new();
        if size.0 > MOST.0 || size.1 > MOST.1 {
            found.push(format!("{} entries with {} bytes", size.0, size.1));
        }
        for (key, old) in before {
            match entries.get(key) {
                None => found.push(format!("{key} is lost")),
                Some(new) if new.memory > old.memory => found.push(format!("{key} grows from {old:?} to {new:?}")),
                Some(_) => {}
            }
        }
        for (key, entry) in entries {
            // In a fleet, other Clusters have Nodes of the same name.
            let is_own = self.standing.as_ref().is_none_or(|standing| standing.is_named(&entry.cluster));
            let node = self.memory.nodes.get(&entry.node).filter(|_| is_own);
            if let Some(node) = node.filter(|node| node.memory < entry.memory) {
                found.push(format!("{key} is {entry:?}, and its Node {node:?}"));
            }
        }
        for what in found {
            self.find(Check::Remembered, format!("copy {copy} writes what is remembered: {what}"));
        }
    }

    /// Checks at rest that the Nodes of Machines of the current templates are remembered.
    pub(super) fn remembered_at_rest(&mut self) {
        let long = |since: Nanos| self.now.saturating_sub(since) >= REMEMBERED_WITHIN;
        let mut found = Vec::new();
        for machine in self.machines.values().filter(|machine| !machine.is_deleting && !machine.is_gone) {
            let is_new = self.is_of_templates(machine);
            let Some(template) = self.template_of(&machine.group) else { continue };
            let namespace = &template.0;
            let node = machine.node.as_ref().and_then(|name| Some((name, self.memory.nodes.get(name)?)));
            let Some((name, node)) = node.filter(|(_, node)| node.ready_since.is_some_and(long)) else { continue };
            // A world with one Cluster has one ConfigMap.
            let maps = &self.memory.entries;
            let map = if self.is_of_fleet() { maps.get(namespace) } else { maps.values().next() };
            let Some(map) = map.filter(|_| is_new && long(machine.changed)) else { continue };
            let is_it = |(key, entry): (&String, &Entry)| {
                key.starts_with(&format!("{namespace}."))
                    && self.template_of(&entry.group).is_none_or(|of| of == template)
                    && entry.memory <= node.memory
            };
            if !map.iter().any(is_it) {
                found.push(format!("Node {name} {node:?} of {} isn't remembered: {map:?}", machine.group));
            }
        }
        for what in found {
            self.find(Check::Remembered, what);
        }
    }
}

/// Returns true if a Node had been Ready for long when its kubelet last wrote so.
fn is_settled(node: &Value) -> bool {
    let ready = node["status"]["conditions"].as_array().and_then(|all| all.iter().find(|it| it["type"] == "Ready"));
    let time = |field: &str| ready?[field].as_str()?.parse::<Timestamp>().ok();
    let (since, last) = (time("lastTransitionTime"), time("lastHeartbeatTime"));
    since.zip(last).is_some_and(|(since, last)| last.duration_since(since) >= SETTLED_AFTER)
}

fn split(id: &str) -> Option<(&str, &str, &str)> {
    let mut parts = id.splitn(3, '/');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

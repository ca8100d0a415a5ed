//! Checks on the ConfigMaps in which copies remember Nodes: they keep to their bounds, no copy loses an entry or makes
//! one larger, and none is larger than the smallest Node that it is about.

use std::collections::{BTreeMap, HashMap};

use sandbox::api::{Api, ChangeKind, Resource, Selection};
use serde_json::Value;

use super::{Author, Check, Ledger};
use crate::entropy::{Nanos, SECOND};

/// The maximum number of entries, and of the bytes of their keys and values.
const MOST: (usize, usize) = (500, 700 << 10);
/// The time after which a Node that has been ready, and its Machine, must be remembered: two writes that are a minute
/// apart, one of which another copy was faster with.
const REMEMBERED_WITHIN: Nanos = 200 * SECOND;

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
}

#[derive(Debug)]
struct Known {
    memory: u64,
    ready_since: Option<Nanos>,
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

pub(crate) fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let unit = ["", "Ki", "Mi", "Gi"].iter().position(|unit| *unit == suffix)?;
    Some(number.parse::<u64>().ok()? << (10 * unit))
}

impl Ledger {
    pub(super) fn remembers_node(&mut self, kind: ChangeKind, node: &Value) {
        let Some(name) = node["metadata"]["name"].as_str() else { return };
        let Some(memory) = node["status"]["allocatable"]["memory"].as_str().and_then(bytes) else { return };
        let conditions = node["status"]["conditions"].as_array();
        let is_ready = kind != ChangeKind::Deleted
            && conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"));
        let known = self.memory.nodes.entry(name.to_owned()).or_insert(Known { memory, ready_since: None });
        known.memory = known.memory.min(memory);
        known.ready_since = if is_ready { known.ready_since.or(Some(self.now)) } else { None };
    }

    /// Checks the changes of ConfigMaps and templates since a revision.
    pub(super) fn memory(&mut self, api: &Api, since: u64, author: Author) {
        let changes = |resource: &Resource| api.changes(resource, &Selection::default(), since).unwrap_or_default();
        let templates = Resource::new("infrastructure.cluster.x-k8s.io", "v1beta2", "cloudmachinetemplates");
        for event in changes(&templates) {
            self.memory.templates_changed = self.now;
            self.memory.templates_differ |= !event.object["spec"]["template"]["spec"]["image"].is_null();
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
            let is_new = machine.created > self.memory.templates_changed + SECOND;
            let Some((_, namespace, _)) = split(&machine.group).filter(|(kind, ..)| *kind != "MachinePool") else {
                continue;
            };
            let node = machine.node.as_ref().and_then(|name| Some((name, self.memory.nodes.get(name)?)));
            let Some((name, node)) = node.filter(|(_, node)| node.ready_since.is_some_and(long)) else { continue };
            // A world with one Cluster has one ConfigMap.
            let maps = &self.memory.entries;
            let map = if self.is_of_fleet() { maps.get(namespace) } else { maps.values().next() };
            let Some(map) = map.filter(|_| is_new && long(machine.changed)) else { continue };
            let is_it = |(key, entry): (&String, &Entry)| {
                key.starts_with(&format!("{namespace}."))
                    && self.have_one_template(&entry.group, &machine.group)
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

    /// Returns the least memory that is remembered of Nodes of a group's template, unless templates have changed.
    pub(crate) fn remembered(&self, group: &str) -> Option<u64> {
        let entries = self.memory.entries.values().flatten().map(|(_, entry)| entry);
        let of = entries.filter(|entry| self.have_one_template(&entry.group, group));
        of.map(|entry| entry.memory).min().filter(|_| !self.memory.templates_differ)
    }

    /// Returns true if two groups are in one namespace and have the same infrastructure template.
    fn have_one_template(&self, group: &str, other: &str) -> bool {
        let place = |id: &str| {
            let name = &self.groups.get(id)?.template["spec"]["infrastructureRef"]["name"];
            Some((split(id)?.1.to_owned(), name.as_str()?.to_owned()))
        };
        place(group).is_some_and(|it| Some(it) == place(other))
    }
}

fn split(id: &str) -> Option<(&str, &str, &str)> {
    let mut parts = id.splitn(3, '/');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

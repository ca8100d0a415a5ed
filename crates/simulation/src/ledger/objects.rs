//! Checks on each new state of an object, and on Nodes: the time that each existed without the labels of its group.

use sandbox::{Object, api::ChangeKind};
use serde_json::Value;

use super::{
    Author, Check, Group, Ledger, Machine,
    memory::states_memory,
    refusals::OLD,
    taken::{FOREIGN_SIZE, OLD_SIZE, POOL},
    watches::Kind,
};
use crate::entropy::{Nanos, SECOND};

const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";

fn controller(object: &Value) -> Option<(&str, &str)> {
    let owner = object.controller()?;
    Some((owner["kind"].as_str()?, owner["name"].as_str()?))
}

impl Ledger {
    pub(super) fn object(&mut self, change: ChangeKind, object: &Value, author: Author) {
        let (kind, namespace, name) = (object.kind(), object.namespace(), object.name());
        let id = format!("{kind}/{namespace}/{name}");
        match kind {
            "Cluster" => self.cluster(change, object),
            "Machine" => self.machine(change, object, author),
            "MachineSet" => {
                let owner = controller(object).map(|(kind, owner)| format!("{kind}/{namespace}/{owner}"));
                self.set(change, &id, owner.as_ref().unwrap_or(&id), object);
                self.sets.insert(format!("{namespace}/{name}"), owner.clone().unwrap_or_else(|| id.clone()));
                match owner {
                    // Another MachineSet may be created under the same name.
                    Some(_) if change == ChangeKind::Deleted => drop(self.set_sizes.remove(&id)),
                    Some(group) => self.size_of_set(&group, &id, object),
                    None => self.group(change, &id, object, author),
                }
            }
            _ => {
                self.change(Kind::Deployments, &id);
                self.group(change, &id, object, author);
            }
        }
    }

    fn group(&mut self, change: ChangeKind, id: &str, object: &Value, author: Author) {
        let number = |key: &str| object.annotation(key).and_then(|text| text.parse().ok());
        let (Some(min), Some(max)) = (number(MIN), number(MAX)) else { return };
        if change == ChangeKind::Deleted {
            if let Some(group) = self.groups.get_mut(id) {
                group.is_gone = true;
                self.gone.insert(id.to_owned(), self.now);
            }
            return;
        }
        self.gone.remove(id);
        let is_deleting = object.deleting();
        let generation_now = object.generation();
        let size = object["spec"]["replicas"].as_i64().unwrap_or(1);
        let states_memory = states_memory(object);
        let Some(before) = self.groups.get(id).filter(|group| !group.is_gone).cloned() else {
            let template = object["spec"]["template"].clone();
            let generation = (generation_now, self.now);
            let group = Group {
                states_memory,
                size,
                generation,
                min,
                max,
                template,
                created: self.now,
                is_deleting,
                bounds: vec![(self.now, min, max)],
                ..Group::default()
            };
            self.note_size(id, size);
            self.groups.insert(id.to_owned(), group);
            return;
        };
        let mut group = Group { size, min, max, is_deleting, states_memory, ..before.clone() };
        if (before.min, before.max) != (min, max) {
            group.bounds.push((self.now, min, max));
        }
        if before.generation.0 != generation_now {
            group.generation = (generation_now, self.now);
        }
        if object["spec"]["template"] != before.template {
            group.rolled = Some(self.now);
            group.template = object["spec"]["template"].clone();
        }
        if let Author::Copy(copy) = author {
            let by = before.size - size;
            if by != 0 {
                self.own_sizes.insert((copy, id.to_owned()), self.now);
            }
            if by > 0 {
                self.own_lower_sizes.entry((copy, id.to_owned())).or_default().push(self.now);
                self.lowers(copy, id, (&before, &mut group), by);
            } else if by < 0 {
                self.begins(copy, "the size", id);
                self.size_of_command(copy, id, &before, size);
            }
            // The copy may know older bounds.
            let lately = self.now.saturating_sub(OLD);
            if by > 0 && group.bounds_since(lately).all(|(min, _)| size < min) {
                self.find(Check::Bounds, format!("copy {copy} wrote size {size} of {id}, below min {min}"));
            }
            if by < 0 && group.bounds_since(lately).all(|(_, max)| size > max) {
                self.find(Check::Bounds, format!("copy {copy} wrote size {size} of {id}, above max {max}"));
            }
        } else if author == Author::Foreign && size != before.size {
            self.foreign_sizes.entry(id.to_owned()).or_default().push((self.now, size));
            group.allow(FOREIGN_SIZE, before.size - size, self.now);
        }
        if id.starts_with("MachinePool/") {
            self.pool(id, &mut group, &before, object);
        }
        self.note_size(id, size);
        self.groups.insert(id.to_owned(), group);
    }

    /// Checks a MachinePool. Its infrastructure provider may remove any Machine to reach the size, and gets time to do
    /// so.
    fn pool(&mut self, id: &str, group: &mut Group, before: &Group, object: &Value) {
        let listed = object["spec"]["providerIDList"].as_array().into_iter().flatten();
        group.instances = listed.filter_map(Value::as_str).map(str::to_owned).collect();
        let has_machines = || self.machines.values().any(|machine| machine.group == id);
        let mut gone = before.instances.difference(&group.instances);
        if gone.any(|instance| !self.named_instances.contains(instance)) && !has_machines() {
            self.takes_any.insert(id.to_owned());
        }
        group.has = object["status"]["replicas"].as_i64().unwrap_or_default();
        group.allow(POOL, before.size - group.size, self.now);
        if group.size < before.size {
            group.last_lowered = Some(self.now);
        }
    }

    /// Returns true if a MachinePool without Machines has lost an instance that no delete named. The provider may then
    /// remove a Node with Pods instead of a drained one.
    pub(crate) fn takes_any(&self, group: &str) -> bool {
        self.takes_any.contains(group)
    }

    /// Records the size of a MachineSet of a MachineDeployment. A size below the group's deletes Machines that no call
    /// named. So does a size that first exceeded the group's: the MachineSet controller has created Machines meanwhile,
    /// and chooses which ones to delete.
    fn size_of_set(&mut self, group: &str, id: &str, object: &Value) {
        let size = object["spec"]["replicas"].as_i64().unwrap_or_default();
        let before = self.set_sizes.insert(id.to_owned(), size).unwrap_or(size);
        let Some(group) = self.groups.get_mut(group) else { return };
        if size < before && size < group.size {
            group.allow(OLD_SIZE, before.min(group.size) - size, self.now);
        }
        let beyond = usize::try_from(size - before.max(group.size)).unwrap_or_default();
        group.beyond_size.extend(std::iter::repeat_n(self.now, beyond));
    }

    fn note_size(&mut self, id: &str, size: i64) {
        let now = self.now;
        let history = self.sizes.entry(id.to_owned()).or_default();
        if history.last().is_some_and(|(_, known)| *known == size) {
            return;
        }
        if let Some((until, _)) = history.last_mut() {
            *until = Some(now);
        }
        history.push((None, size));
    }

    fn machine(&mut self, change: ChangeKind, object: &Value, author: Author) {
        let uid = object.uid().to_owned();
        let namespace = object.namespace();
        let group = match controller(object) {
            Some(("MachineSet", set)) => {
                self.sets.get(&format!("{namespace}/{set}")).cloned().unwrap_or_else(|| set.to_owned())
            }
            Some((kind, name)) => format!("{kind}/{namespace}/{name}"),
            None => String::new(),
        };
        let before = self.machines.get(&uid).cloned();
        let mark = object.annotation(DELETE_MACHINE).map(str::to_owned);
        let known = before.as_ref().and_then(|machine| machine.mark.clone());
        let now = self.now;
        let is_deleting = object.deleting() || change == ChangeKind::Deleted;
        let deleted_by =
            before.as_ref().and_then(|machine| machine.deleted_by).or_else(|| is_deleting.then_some(author));
        let deleting_since =
            before.as_ref().and_then(|machine| machine.deleting_since).or_else(|| is_deleting.then_some(now));
        let deleting_at =
            before.as_ref().and_then(|machine| machine.deleting_at).or_else(|| is_deleting.then_some(self.revision));
        let after = Machine {
            group: before.as_ref().map_or(group, |machine| machine.group.clone()),
            name: object.name().to_owned(),
            node: object["status"]["nodeRef"]["name"].as_str().map(str::to_owned),
            provider_id: object["spec"]["providerID"].as_str().unwrap_or_default().to_owned(),
            is_deleting,
            deleted_by,
            deleting_since,
            deleting_at,
            is_gone: change == ChangeKind::Deleted,
            changed: now,
            mark: mark.map(|mark| match &known {
                Some((known, since)) if *known == mark => (mark, *since),
                Some(_) | None => (mark, now),
            }),
            created: before.as_ref().map_or(now, |machine| machine.created),
        };
        self.change(Kind::Machines, &after.group);
        if let Author::Copy(copy) = author {
            self.writes_machine(copy, &uid, before.as_ref(), &after);
        }
        if after.is_deleting && before.as_ref().is_some_and(|machine| !machine.is_deleting) {
            self.goes(&uid, before.as_ref().unwrap_or(&after), author);
            let observed = self.observed.get(&self.revision).copied();
            if let (Some(observed), Some(group)) = (observed, self.groups.get_mut(&after.group)) {
                group.taken = Some((self.revision, observed));
            }
        }
        let is_new = before.is_none() && author == Author::Controllers && !after.is_deleting;
        let group = after.group.clone();
        self.machines.insert(uid, after);
        if is_new {
            self.comes(&group);
        }
    }
}

/// The time for which a Node must be ready before Cluster Autoscaler may remember it for its group.
const SEEN: Nanos = 5 * SECOND;

impl Ledger {
    pub(super) fn node(&mut self, kind: ChangeKind, node: &Value) {
        self.remembers_node(kind, node);
        let Some(provider_id) = node["spec"]["providerID"].as_str() else { return };
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        match kind {
            ChangeKind::Deleted => {
                self.nodes.remove(provider_id);
                self.change(Kind::Nodes, "");
            }
            ChangeKind::Added | ChangeKind::Modified => {
                if self.nodes.insert(provider_id.to_owned(), name.to_owned()).is_none() {
                    self.change(Kind::Nodes, "");
                }
            }
        }
        let labels = node["metadata"]["labels"].as_object();
        let is_bare = !labels.is_some_and(|labels| labels.contains_key(crate::setup::POOL));
        if is_bare && kind != ChangeKind::Deleted {
            self.bare.entry(provider_id.to_owned()).or_insert(self.now);
        } else if let Some(since) = self.bare.remove(provider_id)
            && self.now.saturating_sub(since) > SEEN
            && let Some(machine) = self.machines.values().find(|machine| machine.provider_id == provider_id)
        {
            self.without_labels.insert(machine.group.clone());
        }
    }

    /// Returns true if a Node of a group existed for long without the group's labels: Cluster Autoscaler may take it as
    /// the group's template as long as the group has no other.
    pub(crate) fn was_without_labels(&self, group: &str) -> bool {
        self.without_labels.contains(group)
    }
}

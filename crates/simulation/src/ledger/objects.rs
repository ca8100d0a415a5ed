//! Checks on each new state of an object.

use sandbox::api::ChangeKind;
use serde_json::Value;

use super::{
    Author, Check, Group, Ledger, Machine,
    log::{self, ANNOTATION, Log, MARKED_BY},
    refusals::OLD,
    taken::{FOREIGN_SIZE, OLD_SIZE, POOL},
    watches::Kind,
};
use crate::entropy::{Nanos, SECOND};

const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
const REPLACED: &str = "capi-autoscaler-provider.io/replaced";
/// The min time between two replacements in one group, less the latency of a request.
const REPLACES_AFTER: Nanos = (5 * 60 - 10) * SECOND;
const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";

/// The min time that the infrastructure of a MachinePool has to remove a Machine: docs/design/delete-rule.md, The
/// finisher.
const LEFT_TO_POOL: Nanos = 300 * SECOND;
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn is_unhealthy(machine: &Value) -> bool {
    if !machine["status"]["nodeRef"]["name"].is_string() {
        return true;
    }
    let conditions = machine["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "NodeHealthy" && condition["status"] == "False")
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

fn controller(object: &Value) -> Option<(&str, &str)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some((owner["kind"].as_str()?, owner["name"].as_str()?))
}

impl Ledger {
    pub(super) fn object(&mut self, change: ChangeKind, object: &Value, author: Author) {
        let (kind, namespace, name) =
            (object["kind"].as_str().unwrap_or_default(), text(object, "namespace"), text(object, "name"));
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
        let number = |key: &str| annotation(object, key).and_then(|text| text.parse().ok());
        let (Some(min), Some(max)) = (number(MIN), number(MAX)) else { return };
        if change == ChangeKind::Deleted {
            if let Some(group) = self.groups.get_mut(id) {
                group.is_gone = true;
                self.gone.insert(id.to_owned(), self.now);
            }
            return;
        }
        self.gone.remove(id);
        let is_deleting = object["metadata"]["deletionTimestamp"].is_string();
        let generation_now = object["metadata"]["generation"].as_i64().unwrap_or_default();
        let size = object["spec"]["replicas"].as_i64().unwrap_or(1);
        let log = match log::parse(annotation(object, ANNOTATION)) {
            Ok(log) => log,
            Err(why) => {
                if let Author::Copy(copy) = author {
                    self.find(
                        Check::Phases,
                        format!(
                            "copy {copy} wrote a log of {id} that is none: {why}: {}",
                            annotation(object, ANNOTATION).unwrap_or_default()
                        ),
                    );
                }
                return;
            }
        };
        let Some(before) = self.groups.get(id).filter(|group| !group.is_gone).cloned() else {
            let template = object["spec"]["template"].clone();
            let generation = (generation_now, self.now);
            let group = Group {
                size,
                generation,
                min,
                max,
                log,
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
        let mut group = Group { size, min, max, is_deleting, ..before.clone() };
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
            self.begins_deletions(copy, id, (&before, &log), size);
            let lowers = self.entries(id, text(object, "uid"), &before.log, &log);
            self.added(copy, id, &before.log, &log);
            self.logged_in_time(copy, id, &before.log, &log);
            let (places, came) = self.by_lists(copy, id, &before, (size, &log));
            group.gives_up(places, came, self.now);
            let by = before.size - size;
            if lowers > 0 && by != lowers {
                self.find(
                    Check::LowersByEntries,
                    format!(
                        "copy {copy} lowered {lowers} entries of {id} and its size by {by}: {} to {size}",
                        before.size
                    ),
                );
            }
            if lowers == 0 && by != 0 {
                self.size_of_command(copy, id, &before, size);
                if by > 0 {
                    let came = self.gives_up(copy, id, &before, by);
                    group.gives_up(by, came, self.now);
                }
            }
            // The copy may know older bounds.
            let lately = self.now.saturating_sub(OLD);
            self.leaves_the_minimum(copy, id, (&group, &before.log), &log);
            if by > 0 && group.bounds_since(lately).all(|(min, _)| size < min) {
                self.find(Check::Bounds, format!("copy {copy} wrote size {size} of {id}, below min {min}"));
            }
            if by < 0 && group.bounds_since(lately).all(|(_, max)| size > max) {
                self.find(Check::Bounds, format!("copy {copy} wrote size {size} of {id}, above max {max}"));
            }
        } else if author == Author::Foreign && size < before.size {
            group.allow(FOREIGN_SIZE, before.size - size, self.now);
        }
        if id.starts_with("MachinePool/") {
            self.pool(id, &mut group, &before, &log, object);
        }
        self.replacement(id, &mut group, annotation(object, REPLACED), author);
        group.log = log;
        self.note_size(id, size);
        self.groups.insert(id.to_owned(), group);
    }

    /// Checks a MachinePool. Its infrastructure provider may remove any Machine to reach the size, and gets time to do
    /// so.
    fn pool(&mut self, id: &str, group: &mut Group, before: &Group, log: &Log, object: &Value) {
        let listed = object["spec"]["providerIDList"].as_array().into_iter().flatten();
        group.instances = listed.filter_map(Value::as_str).map(str::to_owned).collect();
        let has_machines = || self.machines.values().any(|machine| machine.group == id);
        let mut gone = before.instances.difference(&group.instances);
        if gone.any(|instance| !self.named_instances.contains(instance)) && !has_machines() {
            self.takes_any.insert(id.to_owned());
        }
        group.has = object["status"]["replicas"].as_i64().unwrap_or_default();
        group.allow(POOL, before.size - group.size, self.now);
        group.came_down.retain(|uid, _| log.contains_key(uid));
        for (uid, _) in log.iter().filter(|(_, entry)| entry.is_lowered) {
            if before.log.get(uid).is_none_or(|entry| !entry.is_lowered) {
                group.last_lowered = Some(self.now);
            }
            if group.has <= group.size {
                group.came_down.entry(uid.clone()).or_insert(self.now);
            }
        }
    }

    /// Returns true if a MachinePool without Machines has lost an instance that no delete named. The provider may then
    /// remove a Node with Pods instead of a drained one.
    pub(crate) fn takes_any(&self, group: &str) -> bool {
        self.takes_any.contains(group)
    }

    /// Checks the annotation that a copy writes before it replaces a Machine: the next replacement has to wait,
    /// whichever copy makes it.
    fn replacement(&mut self, id: &str, group: &mut Group, annotation: Option<&str>, author: Author) {
        let now = self.now;
        let Some(annotation) = annotation else { return };
        if let Author::Copy(copy) = author
            && !self.replaces
            && group.replaced.as_ref().is_none_or(|(known, _)| known != annotation)
        {
            let what = format!("copy {copy} replaces a Machine of {id}, which --no-replacement forbids: {annotation}");
            self.find(Check::ReplacedTooSoon, what);
        }
        if let Author::Copy(copy) = author
            && let Some((known, since)) = &group.replaced
            && known != annotation
            && now.saturating_sub(*since) < REPLACES_AFTER
            && !self.clocks_jump
        {
            let seconds = (now - since) / SECOND;
            let what = format!(
                "copy {copy} replaces a Machine of {id} {seconds} s after the one before: {known}, {annotation}"
            );
            self.find(Check::ReplacedTooSoon, what);
        }
        if group.replaced.as_ref().is_none_or(|(known, _)| known != annotation) {
            group.replaced = Some((annotation.to_owned(), now));
        }
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

    /// Checks the changes to the entries of a group, which is identified by its uid. Returns the number that were
    /// lowered.
    fn entries(&mut self, id: &str, group: &str, before: &Log, after: &Log) -> i64 {
        let mut lowered = 0;
        for (uid, entry) in after {
            let known = before.get(uid).filter(|known| known.ticket == entry.ticket);
            if known.is_none() && self.left.contains(&(uid.clone(), entry.ticket.clone())) {
                self.find(Check::Phases, format!("{}: the ticket {} of {} came back", id, entry.ticket, entry.name));
            }
            let ticket = (group.to_owned(), entry.ticket.clone());
            if known.is_none() && *self.tickets.entry(ticket).or_insert(self.revision) != self.revision {
                let what = format!("{id}: {} was logged under the ticket {} of others", entry.name, entry.ticket);
                self.find(Check::Phases, what);
            }
            let was_lowered = known.is_some_and(|known| known.is_lowered);
            if was_lowered && !entry.is_lowered {
                self.find(Check::Phases, format!("{id}: the entry of {} went from lowered to wanted", entry.name));
            }
            if entry.is_lowered && !was_lowered {
                lowered += 1;
                if known.is_none() {
                    self.find(
                        Check::Phases,
                        format!("{id}: the entry of {} is lowered and was never wanted", entry.name),
                    );
                }
                if let Some(machine) = self.machines.get(uid)
                    && machine.mark.is_none()
                    && !machine.is_deleting
                    && !machine.is_gone
                {
                    self.find(Check::Phases, format!("{id}: {} lowered the size and isn't marked", entry.name));
                }
                if !entry.is_soft && !self.lowered.insert((group.to_owned(), uid.clone())) {
                    self.find(Check::LoweredOnce, format!("{id}: {} ({uid}) lowered the size twice", entry.name));
                }
            }
            if known.is_none()
                && let Some(machine) = self.machines.get(uid)
                && machine.group != id
            {
                let of = machine.group.clone();
                self.find(Check::MarksOwn, format!("{id}: {} was logged, which is of {of}", entry.name));
            }
            if known.is_none() && !entry.is_soft && !self.named.contains(uid) {
                self.for_places.insert(uid.clone());
                if !self.has_place_command(id) {
                    self.find(Check::MarksOwn, format!("{id}: {} was logged, which nobody has named", entry.name));
                }
            }
        }
        for (uid, entry) in before {
            if after.get(uid).is_none_or(|kept| kept.ticket != entry.ticket) {
                self.left.insert((uid.clone(), entry.ticket.clone()));
            }
        }
        lowered
    }

    fn machine(&mut self, change: ChangeKind, object: &Value, author: Author) {
        let uid = text(object, "uid").to_owned();
        let namespace = text(object, "namespace");
        let group = match controller(object) {
            Some(("MachineSet", set)) => {
                self.sets.get(&format!("{namespace}/{set}")).cloned().unwrap_or_else(|| set.to_owned())
            }
            Some((kind, name)) => format!("{kind}/{namespace}/{name}"),
            None => String::new(),
        };
        let before = self.machines.get(&uid).cloned();
        let mark = annotation(object, DELETE_MACHINE).map(str::to_owned);
        let known = before.as_ref().and_then(|machine| machine.mark.clone());
        let now = self.now;
        let old = before.as_ref().filter(|machine| machine.mark.as_ref().map(|(mark, _)| mark) == mark.as_ref());
        let marked_at = old.map_or(self.revision, |machine| machine.marked_at);
        let is_unhealthy = is_unhealthy(object);
        let old = before.as_ref().filter(|machine| machine.is_unhealthy == is_unhealthy);
        let healthy_at = old.map_or(self.revision, |machine| machine.healthy_at);
        let is_deleting = object["metadata"]["deletionTimestamp"].is_string() || change == ChangeKind::Deleted;
        let deleted_by =
            before.as_ref().and_then(|machine| machine.deleted_by).or_else(|| is_deleting.then_some(author));
        let deleting_since =
            before.as_ref().and_then(|machine| machine.deleting_since).or_else(|| is_deleting.then_some(now));
        let deleting_at =
            before.as_ref().and_then(|machine| machine.deleting_at).or_else(|| is_deleting.then_some(self.revision));
        let after = Machine {
            group: before.as_ref().map_or(group, |machine| machine.group.clone()),
            name: text(object, "name").to_owned(),
            node: object["status"]["nodeRef"]["name"].as_str().map(str::to_owned),
            provider_id: object["spec"]["providerID"].as_str().unwrap_or_default().to_owned(),
            is_unhealthy,
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
            marked_at,
            healthy_at,
            created: before.as_ref().map_or(now, |machine| machine.created),
        };
        self.change(Kind::Machines, &after.group);
        if let Author::Copy(copy) = author {
            self.write_of_machine(copy, &uid, before.as_ref(), &after);
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

    /// Checks a copy's write of a Machine: marks and deletes belong to entries.
    fn write_of_machine(&mut self, copy: usize, uid: &str, before: Option<&Machine>, after: &Machine) {
        let Some(group) = self.groups.get(&after.group) else { return };
        let entry = group.log.get(uid).cloned();
        let old = before.and_then(|machine| machine.mark.as_ref()).map(|(mark, _)| mark);
        let new = after.mark.as_ref().map(|(mark, _)| mark);
        if new != old
            && let Some(ticket) = new.and_then(|mark| mark.strip_prefix(MARKED_BY)).map(str::to_owned)
        {
            self.begins(copy, "a mark", &after.group);
            let is_known = entry.as_ref().is_some_and(|entry| entry.ticket == ticket)
                || self.left.contains(&(uid.to_owned(), ticket.clone()));
            if let Some(entry) = &entry
                && (entry.is_soft || entry.is_pending)
                && before.is_some_and(|machine| machine.node.is_some() && !machine.is_deleting)
            {
                let what = format!("copy {copy} marked {} as one that never joined, and it had a Node", after.name);
                self.find(Check::TakenUnnamed, what);
            } else if !is_known {
                let (name, group) = (after.name.clone(), after.group.clone());
                self.find(
                    Check::MarksOwn,
                    format!("copy {copy} marked {name} of {group} under {ticket}, which was never logged"),
                );
            }
        }
        if new.is_none()
            && old.is_some_and(|old| old.starts_with(MARKED_BY))
            && !after.is_deleting
            && entry.is_some_and(|entry| entry.is_lowered)
        {
            let what = format!("copy {copy} took the mark off {}, which has lowered the size", after.name);
            self.find(Check::MarksOwn, what);
        }
        let is_taken = after.is_deleting && before.is_some_and(|machine| !machine.is_deleting);
        let is_lowered =
            self.groups.get(&after.group).and_then(|group| group.log.get(uid)).is_some_and(|entry| entry.is_lowered);
        if is_taken
            && after.group.starts_with("MachinePool/")
            && let Some(group) = self.groups.get(&after.group)
            && group.came_down.get(uid).is_none_or(|since| self.now.saturating_sub(*since) < LEFT_TO_POOL)
        {
            let (name, group) = (after.name.clone(), after.group.clone());
            let what = format!("copy {copy} deleted {name} of {group} before its infrastructure had the time to");
            self.find(Check::PoolPatience, what);
        }
        if is_taken {
            self.begins(copy, "the deletion of a Machine", &after.group);
            self.deleted_by_name(copy, uid, after);
        }
        if is_taken && !is_lowered && !self.named.contains(uid) {
            let (name, group) = (after.name.clone(), after.group.clone());
            self.find(
                Check::MarksOwn,
                format!("copy {copy} deleted {name} of {group}, which nobody has named and no entry has lowered"),
            );
        }
    }
}

//! Applies the objects of manifests to an index. They are decoded like those of a cluster, so that the index has the
//! same content as a server's.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use rules::capi::{
    Cluster, Context, InfrastructureTemplate, KindRef, Machine, Node, ObjectKey, ScalableKind, ScalableResource,
};
use rules::{
    Exclusion, GroupId, Rules,
    remembered::{Content, SetAside},
};

use super::{
    objects::{Identity, Manifests, Object},
    topology,
};
use index::{Change, Detail, Index, KindState, Memory, PlaceView};

/// An index of manifests.
#[derive(Debug)]
pub(in crate::cli::explain) struct IndexFeed {
    pub(in crate::cli::explain) index: Arc<Index>,
    /// Objects that couldn't be decoded, so that their index entries are incomplete; in words for people.
    pub(in crate::cli::explain) unreadable: Vec<String>,
    /// Data that a group lacks here but would have in a cluster; in words for people.
    pub(in crate::cli::explain) notes: HashMap<GroupId, Vec<String>>,
}

/// Returns an index with the objects of the manifests. Nodes are remembered in the ConfigMaps that are named, or else in
/// those that have entries.
pub(in crate::cli::explain) fn fed(manifests: &Manifests, rules: Rules, remember: &[ObjectKey]) -> IndexFeed {
    let context = Context::new(&rules.keys.group);
    let (memory, unreadable) = memory(manifests, remember);
    let index = Arc::new(Index::new(rules).remembering(memory));
    let mut fed = IndexFeed { index, unreadable, notes: HashMap::new() };
    for (identity, object) in &manifests.objects {
        fed.take(identity, object, &context);
    }
    for made in topology::made(manifests, &context.keys) {
        fed.make(made, &context);
    }
    // The groups determine which kinds are infrastructure templates.
    let wanted = fed.index.wanted_kinds();
    for (identity, object) in &manifests.objects {
        let kind = KindRef { group: identity.group.as_str().into(), kind: identity.kind.as_str().into() };
        if wanted.contains_key(&kind) {
            let template = InfrastructureTemplate::decode(object.meta.clone(), &object.value);
            fed.apply(&kind, identity, object, template);
        }
    }
    fed.note_bootstrap(manifests);
    fed.note_templates(manifests);
    fed
}

/// Returns what the ConfigMaps among the manifests remember, and the entries that can't be used.
fn memory(manifests: &Manifests, remember: &[ObjectKey]) -> (Option<Arc<Memory>>, Vec<String>) {
    let is_config_map = |identity: &Identity| identity.group.is_empty() && identity.kind == "ConfigMap";
    let found: Vec<_> = manifests
        .objects
        .iter()
        .filter(|(identity, _)| is_config_map(identity))
        .filter_map(|(identity, object)| {
            let data = object.value.get("data")?.as_object()?;
            let data: Vec<_> = data.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))).collect();
            let is_one = if remember.is_empty() {
                !Content::parse(data.iter().copied(), None, Timestamp::now()).entries.is_empty()
            } else {
                remember.contains(&identity.key)
            };
            is_one.then_some((&identity.key, data))
        })
        .collect();
    let lacks = remember.iter().filter(|named| found.iter().all(|(key, _)| key != named));
    let lacks: Vec<_> =
        lacks.map(|named| format!("--remember-in {named}: the manifests have no such ConfigMap with data")).collect();
    if found.is_empty() {
        return (None, lacks);
    }
    let memory = Memory::new(&found.iter().map(|(key, _)| (*key).clone()).collect::<Vec<_>>());
    for (key, data) in found {
        memory.set_content(key, "", data);
    }
    let set_aside = |place: PlaceView| {
        let whole = format!("ConfigMap {}", place.config_map);
        SetAside::shown(&place.set_aside)
            .map(move |why| format!("{whole}: an entry isn't used: {why}"))
            .collect::<Vec<_>>()
    };
    let unreadable = memory.view().into_iter().flat_map(set_aside).chain(lacks).collect();
    (Some(Arc::new(memory)), unreadable)
}

impl IndexFeed {
    /// Notes which groups lack their bootstrap template: Nodes are remembered by it where it can be read.
    fn note_bootstrap(&mut self, manifests: &Manifests) {
        for kind in self.index.wanted_kinds().into_keys().filter(|kind| self.index.is_bootstrap(kind)) {
            let _ = self
                .index
                .apply_and_take_notices(Change::Kind(kind, KindState::Unreadable("isn't among the manifests".into())));
        }
        let wants = self.index.wanted_kinds();
        for group in self.index.snapshot(None, Detail::Counts).groups {
            let reference = group.object.as_ref().and_then(|object| object.bootstrap.as_ref());
            let Some(reference) = reference.filter(|reference| wants.contains_key(&KindRef::from(*reference))) else {
                continue;
            };
            let key = ObjectKey::new(group.id.key.namespace.clone(), reference.name.clone());
            let identity = Identity { group: reference.group.to_string(), kind: reference.kind.to_string(), key };
            if !manifests.objects.contains_key(&identity) {
                let note = format!(
                    "{} {} isn't among the manifests: Nodes that are remembered by it aren't found",
                    reference.kind, identity.key
                );
                self.notes.entry(group.id).or_default().push(note);
            }
        }
    }

    /// Notes for each group what its infrastructure template lacks: manifests may not include it, and those of a
    /// repository have no status.
    fn note_templates(&mut self, manifests: &Manifests) {
        for group in self.index.snapshot(None, Detail::Counts).groups {
            let (matters, is_node_known) = match &group.standing {
                Ok(served) => (true, served.definition.template.is_some()),
                Err(excluded) => {
                    let lacks_it = [Exclusion::WaitingForTemplate, Exclusion::NoScaleFromZero];
                    (lacks_it.contains(&excluded.reason), false)
                }
            };
            let reference = group.object.as_ref().and_then(|object| object.infrastructure.as_ref());
            let Some(reference) = reference.filter(|_| matters) else { continue };
            let key = ObjectKey::new(group.id.key.namespace.clone(), reference.name.clone());
            let identity = Identity { group: reference.group.to_string(), kind: reference.kind.to_string(), key };
            let has_capacity = |template: &Object| template.value.pointer("/status/capacity").is_some();
            let note = match manifests.objects.get(&identity).map(has_capacity) {
                Some(true) => continue,
                // The annotations are sufficient.
                Some(false) if is_node_known => continue,
                Some(false) => {
                    "has no status.capacity: an infrastructure provider writes it in the cluster, or none does"
                }
                None => "isn't among the manifests: what its status.capacity may say isn't known",
            };
            let note = format!("{} {} {note}", reference.kind, identity.key);
            self.notes.entry(group.id).or_default().push(note);
        }
    }

    /// Applies an object that Cluster API makes, unless there is one with its name.
    fn make(&mut self, made: topology::Made, context: &Context) {
        let topology::Made { kind, identity, object, notes } = made;
        let id = GroupId::new(kind, identity.key.clone());
        if self.index.snapshot(Some(&id), Detail::Counts).groups.is_empty() {
            let decoded = ScalableResource::decode(kind, object.meta.clone(), &object.value, context);
            self.apply(&kind, &identity, &object, decoded);
            self.notes.entry(id).or_default().extend(notes);
        }
    }

    /// Applies an object of a kind that is always read; ignores others.
    fn take(&mut self, identity: &Identity, object: &Object, context: &Context) {
        let meta = || object.meta.clone();
        let value = &object.value;
        let is_capi = identity.group == context.keys.group;
        match (is_capi, identity.group.as_str(), identity.kind.as_str()) {
            (true, _, "Cluster") => self.apply(&(), identity, object, Cluster::decode(meta(), value)),
            (true, _, "Machine") => self.apply(&(), identity, object, Machine::decode(meta(), value, context)),
            (true, _, kind) => {
                if let Some(kind) = ScalableKind::parse(kind) {
                    let decoded = ScalableResource::decode(kind, meta(), value, context);
                    self.apply(&kind, identity, object, decoded);
                }
            }
            (false, "", "Node") => self.apply(&(), identity, object, Node::decode(meta(), value, context)),
            (false, ..) => {}
        }
    }

    fn apply<T: index::IndexFeed>(
        &mut self,
        kind: &T::Kind,
        identity: &Identity,
        object: &Object,
        decoded: Result<T, String>,
    ) {
        let change = match decoded {
            Ok(decoded) => Some(T::to_change(kind, &Arc::new(decoded))),
            Err(error) => {
                let shown = format!("{} {}", identity.kind, identity.key);
                self.unreadable.push(format!("{}: {shown} can't be read: {error}; correct the field", object.place));
                T::undecodable(kind, object.meta.key.clone(), error.into())
            }
        };
        if let Some(change) = change {
            // The report covers the affected groups.
            let _ = self.index.apply_and_take_notices(change);
        }
    }
}

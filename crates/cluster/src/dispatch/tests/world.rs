//! A management cluster with a fleet's sink: informers of each kind, and the Clusters that joined as the fleet's task
//! lets them.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use rules::capi::{Context, InfrastructureTemplate, Machine, ObjectKey, ScalableKind, ScalableResource, Uid};
use rules::{Rules, Scope, ScopeSpec};
use serde_json::{Value, json};

use super::{
    super::{ByCluster, CoreKind},
    objects::{CLUSTERS, FakeInformer, Id, Informer, KINDS, MACHINES, Names, routed},
};
use crate::{fleet::Standing, template_store::TemplateStore};
use index::{Change, Detail, Index, IndexFeed as _, KindState, objects};

/// The state of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) names: Names<'static>,
    pub(super) decodes: bool,
    /// True if a Cluster has the label of the selector.
    pub(super) is_selected: bool,
    /// The template to which a group refers.
    pub(super) template: Option<&'static str>,
}

struct Joined {
    uid: Uid,
    index: Arc<Index>,
    standing: Arc<Standing>,
}

pub(super) struct World {
    sink: Arc<ByCluster>,
    informers: BTreeMap<CoreKind, Box<dyn Informer>>,
    templates: Arc<TemplateStore>,
    template_informer: FakeInformer<InfrastructureTemplate, TemplateStore>,
    /// The templates that exist, with a content that decodes or doesn't.
    known_templates: BTreeMap<ObjectKey, Value>,
    /// The state of the templates' kind.
    kind_state: Option<KindState>,
    /// The objects that exist.
    objects: BTreeMap<Id, State>,
    joined: BTreeMap<ObjectKey, Joined>,
    /// The objects with which indexes are still to be filled.
    to_fill: Vec<(ObjectKey, Id)>,
    /// The indexes of Clusters that have left, with the last state of each.
    left: Vec<(Arc<Index>, Vec<String>)>,
    left_out: BTreeSet<String>,
    version: u64,
    /// The number of objects of a name that others have replaced.
    replaced: BTreeMap<Id, u64>,
}

impl World {
    pub(super) fn new() -> Self {
        let sink = Arc::new(ByCluster::new("autoscaler=fleet".parse().unwrap(), Arc::default()));
        let context = Context::new(rules::capi::DEFAULT_GROUP);
        let mut informers: BTreeMap<CoreKind, Box<dyn Informer>> = BTreeMap::new();
        informers.insert(CLUSTERS, Box::new(FakeInformer::new(&sink, (), sink.cluster_projection())));
        informers.insert(MACHINES, Box::new(FakeInformer::new(&sink, (), Machine::projection(&context))));
        for kind in ScalableKind::ALL {
            let projection = ScalableResource::projection(kind, &context);
            informers.insert(CoreKind::Scalable(kind), Box::new(FakeInformer::new(&sink, kind, projection)));
        }
        let templates = Arc::<TemplateStore>::default();
        Self {
            sink,
            informers,
            template_informer: FakeInformer::new(&templates, objects::kind(), InfrastructureTemplate::projection()),
            templates,
            known_templates: BTreeMap::new(),
            kind_state: None,
            objects: BTreeMap::new(),
            joined: BTreeMap::new(),
            to_fill: Vec::new(),
            left: Vec::new(),
            left_out: BTreeSet::new(),
            version: 0,
            replaced: BTreeMap::new(),
        }
    }

    fn informer(&mut self, kind: CoreKind) -> &mut dyn Informer {
        &mut **self.informers.get_mut(&kind).unwrap()
    }

    /// Adds or updates an object.
    pub(super) fn set(&mut self, id: &Id, state: State) {
        self.version += 1;
        let uid = self.replaced.get(id).copied().unwrap_or_default();
        let object = object(id, state, uid, self.version);
        self.objects.insert(id.clone(), state);
        self.informer(id.0).set(&object);
    }

    /// The next state is of another object under that name.
    pub(super) fn replace(&mut self, id: &Id) {
        *self.replaced.entry(id.clone()).or_default() += 1;
    }

    pub(super) fn delete(&mut self, id: &Id) {
        self.objects.remove(id);
        self.informer(id.0).delete(&id.1);
        self.replace(id);
    }

    pub(super) fn relist(&mut self, kind: CoreKind) {
        self.informer(kind).relist();
    }

    /// Delivers events of a kind. A Cluster's state is noted when it leaves.
    pub(super) fn deliver(&mut self, kind: CoreKind, count: usize) {
        for _ in 0..count {
            if !self.informer(kind).deliver() {
                return;
            }
            let has_left = |(_, joined): &(&ObjectKey, &Joined)| joined.standing.left().is_some();
            let left: Vec<_> = self.joined.iter().filter(has_left).map(|(cluster, _)| cluster.clone()).collect();
            for cluster in left {
                let Joined { index, .. } = self.joined.remove(&cluster).unwrap();
                self.templates.remove(&index);
                let last = shown(&index);
                self.left.push((index, last));
            }
        }
    }

    /// Lets Clusters join, as the fleet's task does.
    pub(super) fn join(&mut self) {
        for (cluster, uid) in self.sink.to_join() {
            let (index, standing) = (self.templates.index(rules(&cluster)), Arc::<Standing>::default());
            assert!(self.sink.join(&cluster, &uid, &index, &standing));
            for (kind, informer) in &self.informers {
                let keys = informer.keys_in(&cluster.namespace).into_iter();
                self.to_fill.extend(keys.map(|key| (cluster.clone(), (*kind, key))));
            }
            let before = self.joined.insert(cluster.clone(), Joined { uid, index, standing });
            assert!(before.is_none(), "{cluster} has joined twice");
        }
    }

    /// Fills indexes with some objects, while events arrive in between.
    pub(super) fn fill(&mut self, count: usize) {
        for (cluster, (kind, key)) in self.to_fill.drain(..count.min(self.to_fill.len())) {
            self.informers[&kind].fill(&cluster, &key, &self.sink);
        }
    }

    /// Lets the indexes hear of the kinds that their groups name, as the task of each Cluster does.
    pub(super) fn supply(&self) {
        for joined in self.joined.values() {
            self.templates.set_wanted(&joined.index);
        }
    }

    /// Adds or updates a template.
    pub(super) fn set_template(&mut self, key: &ObjectKey, cpu: u8, decodes: bool) {
        self.version += 1;
        let capacity = if decodes { json!({"cpu": cpu.to_string(), "memory": "1Gi"}) } else { json!(5) };
        let template = json!({
            "metadata": {
                "namespace": &*key.namespace, "name": &*key.name, "uid": "template",
                "resourceVersion": self.version.to_string(),
            },
            "status": {"capacity": capacity},
        });
        self.template_informer.set(&template);
        self.known_templates.insert(key.clone(), template);
    }

    pub(super) fn delete_template(&mut self, key: &ObjectKey) {
        self.template_informer.delete(key);
        self.known_templates.remove(key);
    }

    pub(super) fn relist_templates(&mut self) {
        self.template_informer.relist();
    }

    pub(super) fn deliver_templates(&mut self, count: usize) {
        for _ in 0..count {
            if !self.template_informer.deliver() {
                return;
            }
        }
    }

    /// Lets the kind of the templates be in this state.
    pub(super) fn set_kind(&mut self, state: KindState) {
        self.templates.set_kind(&objects::kind(), Some(state.clone()));
        self.kind_state = Some(state);
    }

    /// Returns the index of a Cluster that is served.
    pub(super) fn index(&self, cluster: &ObjectKey) -> &Index {
        &self.joined[cluster].index
    }

    /// Returns true if no template is kept, and no index is known.
    pub(super) fn keeps_no_templates(&self) -> bool {
        self.templates.keeps_nothing()
    }

    /// Lets the namespace `team-b` be readable or not.
    pub(super) fn leave_out(&mut self, is_left_out: bool) {
        self.left_out = is_left_out.then(|| "team-b".to_owned()).into_iter().collect();
        self.sink.set_forbidden_namespaces(&self.left_out);
    }

    /// Lets all objects decode, delivers everything, and compares the indexes with those of single Clusters.
    pub(super) fn settle(&mut self) {
        let odd: Vec<_> = self.objects.iter().filter(|(_, state)| !state.decodes).map(|(id, _)| id.clone()).collect();
        for id in odd {
            let state = State { decodes: true, ..self.objects[&id] };
            self.set(&id, state);
        }
        self.deliver_all();
        self.join();
        self.fill(usize::MAX);
        self.deliver_all();
        self.deliver_templates(usize::MAX);
        self.supply();
        self.check();
    }

    /// Returns the number of lookups of an index.
    pub(super) fn looks(&self) -> usize {
        self.sink.state.lock().looks
    }

    pub(super) fn deliver_all(&mut self) {
        for kind in KINDS {
            self.deliver(kind, usize::MAX);
        }
    }

    fn check(&self) {
        let selected = self.objects.iter().filter(|(id, state)| id.0 == CLUSTERS && state.is_selected);
        let selected: Vec<_> = selected.map(|(id, _)| id).collect();
        assert!(self.joined.keys().eq(selected.iter().map(|(_, cluster)| cluster)), "the Clusters that are served");
        for id in selected {
            let cluster = &id.1;
            let Joined { uid, index, .. } = &self.joined[cluster];
            let expected = self.replaced.get(id).copied().unwrap_or_default();
            assert_eq!(uid.to_string(), expected.to_string(), "{cluster}");
            assert!(self.sink.is_selected(cluster), "{cluster}");
            assert_eq!(shown(index), shown(&self.alone(cluster)), "{cluster}");
        }
        for (index, last) in &self.left {
            assert_eq!(shown(index), *last, "the index of a Cluster that has left has changed");
        }
    }

    /// Returns a single index that was fed with the objects of a Cluster alone.
    fn alone(&self, cluster: &ObjectKey) -> Index {
        let index = Arc::new(Index::new(rules(cluster)));
        index.apply(Change::ForbiddenNamespaces(
            self.left_out.iter().filter(|name| **name == *cluster.namespace).cloned().collect(),
        ));
        for (kind, informer) in &self.informers {
            let own = self.objects.keys().filter(|id| id.0 == *kind && self.is_of(id, cluster));
            informer.show(&own.map(|id| id.1.clone()).collect::<HashSet<_>>(), &index);
        }
        let mut templates = FakeInformer::new(&index, objects::kind(), InfrastructureTemplate::projection());
        for template in self.known_templates.values() {
            templates.set(template);
        }
        while templates.deliver() {}
        drop(templates);
        index.apply(match self.kind_state.clone() {
            Some(state) => Change::Kind(objects::kind(), state),
            None => Change::KindGone(objects::kind()),
        });
        Arc::into_inner(index).unwrap()
    }

    /// Returns true if an object belongs to a Cluster, by itself or by an owner.
    fn is_of(&self, id: &Id, cluster: &ObjectKey) -> bool {
        let (kind, key) = id;
        if key.namespace != cluster.namespace {
            return false;
        }
        match self.objects.get(id).map(|state| state.names) {
            _ if *kind == CLUSTERS => key.name == cluster.name,
            Some(Names::InSpec(name) | Names::ByLabel(name)) => *cluster.name == *name,
            Some(Names::Owner(Some((kind, name)))) => {
                self.is_of(&(CoreKind::Scalable(kind), ObjectKey::new(key.namespace.clone(), name)), cluster)
            }
            Some(Names::Owner(None)) | None => false,
        }
    }
}

fn rules(cluster: &ObjectKey) -> Rules {
    let scope = Scope::Specs(vec![ScopeSpec::cluster(&*cluster.namespace, &*cluster.name)]);
    Rules { scope, ..objects::rules() }
}

fn object(id: &Id, state: State, uid: u64, version: u64) -> Value {
    let State { names, decodes, is_selected, template } = state;
    let (labels, names) = match id.0 {
        CLUSTERS if is_selected => (json!({"metadata": {"labels": {"autoscaler": "fleet"}}}), Names::Owner(None)),
        _ => (json!({}), names),
    };
    let mut object = routed(id, uid, version, names, decodes);
    objects::merge(&mut object, &labels);
    if let (CoreKind::Scalable(_), Some(template)) = (id.0, template) {
        objects::merge(&mut object, &objects::using_template(template));
    }
    object
}

/// Returns the content of an index.
fn shown(index: &Index) -> Vec<String> {
    index.refresh();
    let groups = index.snapshot(None, Detail::Instances).groups;
    let mut shown: Vec<_> = groups
        .iter()
        // A deleted group may stay for the rest of a loop.
        .filter_map(|group| {
            let object = group.object.as_ref()?;
            let instances = group.instances(true).into_iter().flatten().map(|owned| owned.instance.clone());
            let mut instances: Vec<_> = instances.map(|instance| format!("{instance:?}")).collect();
            instances.sort();
            Some(format!("{} {:?} {object:?} {} {instances:?}", group.id, group.standing, group.size))
        })
        .collect();
    shown.extend(index.groups().iter().map(|group| format!("{group:?}")));
    shown.extend(rules::capi::Cluster::keys(index, &()).iter().map(|key| format!("Cluster {key}")));
    shown.extend(Machine::keys(index, &()).iter().map(|key| format!("Machine {key}")));
    shown.sort();
    shown
}

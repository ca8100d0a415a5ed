//! A management cluster with a router: informers of each kind, and a model beside it.

use std::{collections::BTreeMap, sync::Arc};

use rules::capi::{Cluster, Context, Machine, ObjectKey, ScalableKind, ScalableResource};

use super::{
    super::*,
    informer::Informer,
    model::{Model, Own},
};
use crate::objects::{
    routed::{CLUSTERS, FakeInformer, Id, KINDS, MACHINES, Names, routed},
    rules,
};

pub(super) struct World {
    pub(super) router: Arc<Router>,
    pub(super) model: Model,
    informers: BTreeMap<RoutedKind, Box<dyn Informer>>,
    /// The objects with which indexes are still to be filled.
    to_fill: Vec<(ObjectKey, Id)>,
    version: u64,
    /// The number of objects of a name that others have replaced.
    replaced: BTreeMap<Id, u64>,
}

impl World {
    pub(super) fn new() -> Self {
        let router = Arc::new(Router::default());
        let context = Context::new(rules::capi::DEFAULT_GROUP);
        let mut informers: BTreeMap<RoutedKind, Box<dyn Informer>> = BTreeMap::new();
        informers.insert(CLUSTERS, Box::new(FakeInformer::new(&router, (), Cluster::projection())));
        informers.insert(MACHINES, Box::new(FakeInformer::new(&router, (), Machine::projection(&context))));
        for kind in ScalableKind::ALL {
            let projection = ScalableResource::projection(kind, &context);
            informers.insert(RoutedKind::Scalable(kind), Box::new(FakeInformer::new(&router, kind, projection)));
        }
        Self { router, model: Model::default(), informers, to_fill: Vec::new(), version: 0, replaced: BTreeMap::new() }
    }

    pub(super) fn informer(&mut self, kind: RoutedKind) -> &mut dyn Informer {
        &mut **self.informers.get_mut(&kind).unwrap()
    }

    /// Adds or updates an object that decodes or doesn't.
    pub(super) fn set(&mut self, id: &Id, names: Names<'_>, decodes: bool) {
        let (kind, key) = id;
        let uid = self.replaced.get(id).copied().unwrap_or_default();
        self.version += 1;
        let version = self.version;
        let own = match (kind, names) {
            (RoutedKind::Cluster, _) => Own::Cluster(key.name.to_string()),
            (_, Names::InSpec(name) | Names::ByLabel(name)) => Own::Cluster(name.to_owned()),
            (_, Names::Owner(_)) if !decodes => Own::Unreadable,
            (_, Names::Owner(Some((kind, name)))) => {
                Own::Owner((RoutedKind::Scalable(kind), ObjectKey::new(key.namespace.clone(), name)))
            }
            (_, Names::Owner(None)) => Own::None,
        };
        self.model.means(version, own);
        self.informer(*kind).set(&routed(id, uid, version, names, decodes));
    }

    /// The next state is of another object under that name.
    pub(super) fn replace(&mut self, id: &Id) {
        *self.replaced.entry(id.clone()).or_default() += 1;
    }

    pub(super) fn delete(&mut self, (kind, key): &Id) {
        self.informer(*kind).delete(key);
    }

    pub(super) fn relist(&mut self, kind: RoutedKind) {
        let Self { informers, model, .. } = self;
        informers.get_mut(&kind).unwrap().relist(model);
    }

    /// Delivers events of a kind.
    pub(super) fn deliver(&mut self, kind: RoutedKind, count: usize) {
        let Self { informers, model, .. } = self;
        let informer = informers.get_mut(&kind).unwrap();
        (0..count).take_while(|_| informer.deliver(model)).count();
    }

    /// Delivers everything, and compares the indexes with the model.
    pub(super) fn settle(&mut self) {
        self.fill(usize::MAX);
        for kind in KINDS {
            self.deliver(kind, usize::MAX);
        }
        self.model.check(&self.router);
    }

    /// Opts a Cluster in, and returns its index, which is still to be filled; `None` if the Cluster doesn't exist.
    pub(super) fn opt_in(&mut self, cluster: &ObjectKey) -> Option<Arc<Index>> {
        let index = Arc::new(Index::new(rules()));
        let exists = self.router.insert(cluster, Arc::clone(&index));
        assert_eq!(exists, self.model.exists(cluster), "{cluster}");
        if !exists {
            return None;
        }
        self.model.opt_in(cluster, Arc::clone(&index));
        for (kind, informer) in &self.informers {
            let keys = informer.keys_in(&cluster.namespace).into_iter();
            self.to_fill.extend(keys.map(|key| (cluster.clone(), (*kind, key))));
        }
        Some(index)
    }

    /// Fills indexes with some objects, while events arrive in between.
    pub(super) fn fill(&mut self, count: usize) {
        let Self { informers, model, router, to_fill, .. } = self;
        for (cluster, (kind, key)) in to_fill.drain(..count.min(to_fill.len())) {
            informers[&kind].fill(&cluster, &key, model, router);
        }
    }

    pub(super) fn opt_out(&mut self, cluster: &ObjectKey) {
        self.model.opt_out(cluster);
        self.router.remove(cluster);
    }
}

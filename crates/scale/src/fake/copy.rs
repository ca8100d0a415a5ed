//! A copy of the program, whose watches are updated when a test says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arc_swap::ArcSwapOption;
use capi::{Keys, Machine, ObjectKey, ScalableKind, ScalableResource};
use kube::Client;
use nodegroup::{CapacityWords, ErrorRules, Rules, Scope, TemplateRules};
use parking_lot::Mutex;
use shared_informer::{AsOf, Object};
use tokio::runtime::Handle;

use super::{NAMESPACE, api::FakeApi, context, meta, resources};
use crate::{Api, EventRecorder, MayWrite, Scale, ScaleMetrics, ScaleOptions, WatchedMachines, WriteBudget};
use index::{Change, Index};

/// The watch of Machines, as far as the test has let it come, and those that it leaves out.
#[derive(Default)]
pub(super) struct Watched(Mutex<(u64, BTreeMap<ObjectKey, Arc<Machine>>)>, Mutex<BTreeSet<ObjectKey>>);

impl WatchedMachines for Watched {
    fn as_of(&self, key: &ObjectKey, version: u64) -> AsOf<Machine> {
        let watched = self.0.lock();
        let held = |machine: &Arc<Machine>| {
            AsOf::Present(Arc::new(Object { metadata: machine.meta.clone(), content: Ok(Arc::clone(machine)) }))
        };
        if watched.0 < version || !self.has_all_of(&key.namespace) {
            return AsOf::Behind;
        }
        watched.1.get(key).map_or(AsOf::Absent, held)
    }

    fn has_all_of(&self, _: &str) -> bool {
        self.1.lock().is_empty()
    }
}

/// One copy of the program, on the API of a world.
#[derive(Clone)]
pub struct Copy {
    pub index: Arc<Index>,
    pub scale: Scale,
    watched: Arc<Watched>,
    api: FakeApi,
}

impl Copy {
    pub(super) fn new(
        api: &FakeApi,
        options: ScaleOptions,
        tenant: Option<Arc<dyn MayWrite>>,
        events: EventRecorder,
    ) -> Self {
        let index = Arc::new(Index::new(Rules {
            keys: Keys::default(),
            scope: Scope::All,
            template: TemplateRules::default(),
            prices: Arc::default(),
            errors: ErrorRules::default(),
            capacity_words: CapacityWords::default(),
        }));
        let calls = api.clone();
        let client = Client::new(tower::service_fn(move |request| calls.clone().serve(request)), "default");
        let resources = Arc::new(ArcSwapOption::from_pointee(resources()));
        let watched = Arc::new(Watched::default());
        let calls = Api::new(client, resources, Keys::default());
        let calls = match tenant {
            Some(tenant) => calls.of_tenant(tenant, &WriteBudget::default()),
            None => calls,
        };
        let scale = Scale::new(
            Arc::clone(&index),
            calls,
            Arc::clone(&watched) as Arc<_>,
            options,
            ScaleMetrics::default(),
            events,
            Handle::current(),
        );
        let copy = Self { index, scale, watched, api: api.clone() };
        copy.watch();
        copy
    }

    /// Lets the watch leave a Machine out, as one of a namespace with too many.
    pub fn leave_out(&self, machine: &str) {
        self.watched.1.lock().insert(ObjectKey::new(NAMESPACE, machine));
        self.watch();
    }

    /// Lets the watches show all objects.
    pub fn watch(&self) {
        let kinds = [
            (ScalableKind::MachineDeployment, "machinedeployments"),
            (ScalableKind::MachineSet, "machinesets"),
            (ScalableKind::MachinePool, "machinepools"),
        ];
        for (kind, plural) in kinds {
            for value in self.api.all(plural) {
                let object = ScalableResource::decode(kind, meta(&value), &value, &context()).expect("decodes");
                self.index.apply_quietly(Change::Scalable(Arc::new(object)));
            }
        }
        let (mut held, left_out) = (BTreeMap::new(), self.watched.1.lock().clone());
        for value in self.api.all("machines") {
            let machine = Machine::decode(meta(&value), &value, &context()).expect("decodes");
            if left_out.contains(&machine.meta.key) {
                continue;
            }
            let machine = Arc::new(machine);
            held.insert(machine.meta.key.clone(), Arc::clone(&machine));
            self.index.apply_quietly(Change::Machine(machine));
        }
        let mut watched = self.watched.0.lock();
        for key in watched.1.keys().filter(|key| !held.contains_key(key)) {
            self.index.apply_quietly(Change::MachineGone(key.clone()));
        }
        *watched = (self.api.objects.revision(), held);
    }
}

//! A model of Cluster Autoscaler, and the calls that its loop shares.
//!
//! It models CPUs as the only resource, and does not balance similar groups.

use std::{collections::BTreeMap, fmt::Display, sync::Arc, time::Duration};

use anyhow::Result;
use fastrand::Rng;
use futures::future::join_all;
use proto::NodeGroup;
use tokio::task::JoinSet;
use tonic::Code;

use super::{
    Caller, Settings, Version, Workload,
    caller::{Fields, Options},
    memory::{Ended, LoopInput, Memory},
    pods::Shape,
    version::Pattern,
};

/// The receiver of log lines.
pub(super) type Notes = Arc<dyn Fn(&str) + Send + Sync>;

/// A model of Cluster Autoscaler. Dropping it ends everything it does, as a kill would.
pub struct Driver {
    pub(super) caller: Caller,
    pub(super) workload: Workload,
    pub(super) pattern: Pattern,
    pub(super) fields: Fields,
    pub(super) settings: Settings,
    pub(super) notes: Notes,
    /// Stands in for the random iteration order of Go's maps.
    pub(super) rng: Rng,
    pub(super) memory: Memory,
    /// The deletes under way.
    pub(super) deletions: JoinSet<Ended>,
}

impl Driver {
    /// Creates a driver of a version, which calls a provider and watches a workload cluster. [`Self::run`] starts it.
    pub fn new(
        caller: Caller,
        workload: Workload,
        version: Version,
        settings: Settings,
        rng: Rng,
        notes: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let (pattern, fields) = (Pattern::of(version), Fields::of(version));
        let notes: Notes = Arc::new(notes);
        let (memory, deletions) = (Memory::default(), JoinSet::new());
        Self { caller, workload, pattern, fields, settings, notes, rng, memory, deletions }
    }

    pub(super) fn note(&self, what: &str, about: &dyn Display) {
        (self.notes)(&format!("{what}: {about}"));
    }

    /// Returns the shape of a group's template, or `None` if the provider doesn't implement the call.
    pub(super) async fn template(&self, group: &str) -> Result<Option<Shape>> {
        match self.caller.template(group).await {
            Ok(answer) => Ok(Some((&self.fields.template(answer)?).into())),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    pub(super) async fn sizes(&self, groups: &[NodeGroup]) -> Result<BTreeMap<String, i32>> {
        let mut sizes = BTreeMap::new();
        for group in groups {
            sizes.insert(group.id.clone(), self.caller.target_size(&group.id).await?);
        }
        Ok(sizes)
    }

    /// Fetches all sizes again. If one call fails, all sizes are unknown.
    pub(super) async fn recalculate(&mut self, input: &LoopInput) {
        self.memory.targets = self.sizes(&input.groups).await.unwrap_or_else(|error| {
            self.note("no sizes", &error);
            BTreeMap::new()
        });
    }

    /// Fetches the instances of groups concurrently. A group whose call fails has none.
    pub(super) async fn ask_for_instances(&mut self, groups: &[NodeGroup]) {
        let answers = join_all(groups.iter().map(async |group| {
            let instances = self.caller.instances(&group.id).await.unwrap_or_default();
            (group.id.clone(), instances)
        }))
        .await;
        self.memory.instances.extend(answers);
    }

    /// Fetches a group's options the given number of times in a row, since no answer is cached. Returns `None` if a
    /// call fails.
    pub(super) async fn options(&self, group: &str, times: usize) -> Result<Option<Options>> {
        let defaults = self.fields.defaults(self.settings);
        let mut options = self.fields.options(&defaults, self.settings.startup)?;
        for _ in 0..times {
            match self.caller.options(group, defaults).await {
                Ok(Some(answer)) => {
                    let keeps = !self.pattern.loses_startup_time();
                    let startup = if keeps { self.settings.startup } else { Duration::ZERO };
                    options = self.fields.options(&answer, startup)?;
                }
                Ok(None) => {}
                Err(status) if status.code() == Code::Unimplemented => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(options))
    }

    /// Fetches the GPU label once. An error is not cached.
    pub(super) async fn fetch_gpu_label(&mut self) {
        if !self.memory.knows_gpu_label {
            self.memory.knows_gpu_label = self.caller.gpu_label().await.is_ok();
        }
    }

    /// Makes the GPU calls that Cluster Autoscaler makes when the first Node comes or goes.
    pub(super) async fn fetch_gpus(&mut self) {
        if !self.memory.knows_gpu_types {
            self.memory.knows_gpu_types = self.caller.gpu_types().await.is_ok();
        }
        self.fetch_gpu_label().await;
    }
}

//! Infrastructure templates: the informer of their kind starts when a group first names it. Only the first Refresh to
//! succeed waits for their first lists, for some seconds; a kind that is missing or forbidden, or named later, never makes
//! Refresh fail: the index gets the reason, and the kind is tried again. A kind once named is followed to the end: groups come back, and what was known of their templates must not be stale then.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

use super::{follow::Followed, management::Management};
use crate::{
    capi::{InfrastructureTemplate, KindRef, LookupError, lookup},
    connect::cause,
    index::{Change, Index, KindState},
    informer::Namespaces,
    tasks::Spawner,
};

/// How long a kind that was found may be broken before discovery is asked again how it is served.
const BROKEN: Duration = Duration::from_secs(60);
/// How often a kind is looked at.
const LOOK: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The kinds that were named so far, with what is known of them.
pub(super) type KindStates = Arc<Mutex<BTreeMap<KindRef, KindState>>>;

/// The namespaces of the scope that can't be read, as the core kinds show it.
pub(super) type LeftOutNamespaces = Arc<ArcSwap<BTreeSet<String>>>;

/// Follows the kinds that groups of one index name.
pub(super) struct Templates {
    pub(super) management: Management,
    pub(super) index: Arc<Index>,
    pub(super) namespaces: Namespaces,
    pub(super) states: KindStates,
    pub(super) left_out: LeftOutNamespaces,
    pub(super) spawner: Spawner,
}

impl Templates {
    /// Starts a task per kind as groups name them. Ends when it is dropped.
    pub(super) async fn follow(self: Arc<Self>, tasks: TaskTracker, ended: tokio_util::sync::CancellationToken) {
        let mut wanted = self.index.wanted_kinds();
        loop {
            let kinds = wanted.borrow_and_update().clone();
            for kind in kinds {
                // What is known of a kind stays known when another one is named.
                if let Entry::Vacant(new) = self.states.lock().entry(kind.clone()) {
                    new.insert(KindState::Pending);
                    let (templates, ended) = (Arc::clone(&self), ended.clone());
                    self.spawner.spawn_tracked(&tasks, async move {
                        ended.run_until_cancelled(templates.follow_kind(kind)).await;
                    });
                }
            }
            if wanted.changed().await.is_err() {
                return;
            }
        }
    }

    async fn follow_kind(&self, kind: KindRef) {
        let mut previous: Option<Followed<InfrastructureTemplate>> = None;
        loop {
            let resource = self.find(&kind).await;
            let followed = match previous.take() {
                Some(followed) if *followed.resource() == resource => followed,
                previous => Followed::start(
                    self.management.factory(),
                    resource,
                    self.namespaces.clone(),
                    InfrastructureTemplate::projection(),
                    (&self.index, kind.clone()),
                    previous,
                ),
            };
            self.watch_over(&kind, &followed).await;
            previous = Some(followed);
        }
    }

    /// How the kind is served; tried until it is.
    async fn find(&self, kind: &KindRef) -> kube::core::ApiResource {
        let mut pause = FIRST_PAUSE;
        loop {
            match lookup(&self.management.clients().writes, kind).await {
                Ok(resource) => return resource,
                Err(LookupError::Api(error)) => self.tell(kind, KindState::Unreadable(cause(&error).into())),
                Err(error) => self.tell(kind, KindState::Unreadable(error.to_string().into())),
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tells how the kind fares; returns when it has been broken for long.
    async fn watch_over(&self, kind: &KindRef, followed: &Followed<InfrastructureTemplate>) {
        let mut broken_since = None;
        loop {
            let left_out = self.left_out.load_full();
            followed.stop_waiting_for(&left_out);
            let health = followed.health();
            let broken = health.broken(&left_out);
            broken_since = broken.and(broken_since.or_else(|| Some(Instant::now())));
            let state = match (health.synced, broken) {
                (true, _) => KindState::Synced,
                (false, None) => KindState::Pending,
                (false, Some(broken)) => KindState::Unreadable(broken.reason.as_str().into()),
            };
            self.tell(kind, state);
            if broken_since.is_some_and(|since: Instant| since.elapsed() > BROKEN) {
                return;
            }
            if health.synced {
                sleep(LOOK).await;
            } else {
                tokio::select! {
                    () = followed.synced() => {}
                    () = sleep(LOOK) => {}
                }
            }
        }
    }

    fn tell(&self, kind: &KindRef, state: KindState) {
        let known = self.states.lock().insert(kind.clone(), state.clone());
        if known.as_ref() != Some(&state) {
            if let KindState::Unreadable(why) = &state {
                tracing::warn!(%kind, "infrastructure templates of this kind can't be read: {why}");
            }
            self.index.apply(Change::Kind(kind.clone(), state));
        }
    }
}

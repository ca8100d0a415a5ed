//! Infrastructure templates: the informer of a kind starts when a group first names the kind. Refresh waits for the
//! first lists only at the start, for some seconds. A kind that is missing, forbidden or named later must never make
//! Refresh fail: the index gets the reason, and discovery is repeated.
//!
//! Anybody who may write a group chooses the kinds it names. So a kind that isn't served costs an entry and no
//! request of its own, the number of followed kinds is limited, and a kind that isn't named any more is dropped after a
//! while.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use arcstr::ArcStr;
use connect::discovery::{Discovered, LookupError};
use index::{Index, KindState, Sink};
use kube::core::ApiResource;
use parking_lot::Mutex;
use rules::{
    capi::{InfrastructureTemplate, KindRef},
    log_limit::LogLimit,
};
use service::listen::Check;
use shared_informer::{Namespaces, Spawner};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{follow::Followed, management::Management, reach::LeftOutNamespaces, template_store::TemplateStore};

/// The time for which a discovered kind may be broken before discovery is repeated.
const BROKEN: Duration = Duration::from_secs(60);
/// The interval at which a kind's health is checked.
const LOOK: Duration = Duration::from_secs(1);
/// The time for which a kind stays followed after its last group: groups come back, by a rollout or by hand.
const GRACE: Duration = Duration::from_secs(600);
/// The pause after each evaluation of the named kinds, in which further changes are batched.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
const LONGEST_PAUSE_FOR_LOST: Duration = Duration::from_secs(30);
/// The maximum pause before discovery is repeated if groups name a new kind.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(10);
/// The maximum number of kinds in one check, and in the log lines of a minute.
const NAMED: usize = 10;
const OTHER_TEMPLATES: &str = "templates/not-followed";

/// The named kinds with their state.
pub(super) type KindStates = Arc<Mutex<BTreeMap<KindRef, Known>>>;

/// The state of a named kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Known {
    pub(super) state: KindState,
    /// True if its templates are followed. A kind that isn't followed may have a made-up name.
    pub(super) is_followed: bool,
}

/// The resource of a kind, or the reason for which it isn't served any more.
type Found = Result<ApiResource, ArcStr>;

/// A followed kind.
struct Following {
    /// Its position in the order in which kinds began to be followed.
    number: u64,
    found: watch::Sender<Found>,
    dropped: CancellationToken,
    unnamed_since: Option<Instant>,
}

/// A message of a followed kind's task.
enum News {
    /// The kind has been broken for longer than [`BROKEN`].
    Broken,
    /// The kind was dropped, and its objects are removed.
    Dropped(KindRef),
}

/// The task that follows the kinds that groups name.
pub(super) struct Templates {
    pub(super) management: Management,
    pub(super) store: Arc<TemplateStore>,
    pub(super) namespaces: Namespaces,
    pub(super) states: KindStates,
    pub(super) left_out: LeftOutNamespaces,
    pub(super) spawner: Spawner,
}

/// The results of discovery, and the schedule of the next query.
struct Questions {
    answer: Result<Discovered, ArcStr>,
    asked: Option<Instant>,
    pause: Duration,
    /// True if a followed kind has been broken for longer than [`BROKEN`].
    broken: bool,
    /// True if a followed kind isn't served any more. It was served once, so its name isn't made up.
    lost: bool,
}

impl Questions {
    /// Queries discovery if that is due, and the resources of API groups that weren't queried yet.
    async fn ask(&mut self, management: &Management, named: &BTreeMap<KindRef, BTreeSet<ArcStr>>, is_new: bool) {
        let client = &management.clients().writes;
        if self.due(is_new) <= Instant::now() {
            self.pause = if self.asked.is_some() { (self.pause * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
            self.answer = Discovered::ask(client).await.map_err(|error| error.reason().into());
            self.asked = Some(Instant::now());
            self.broken = false;
        }
        if let Ok(discovered) = &mut self.answer {
            discovered.ask_for(client, named.keys().map(|kind| kind.group.clone()).collect()).await;
        }
    }

    /// Resets the pause once no kind has been missing for [`LONGEST_PAUSE`].
    fn rest(&mut self, nothing_is_missing: bool) {
        if nothing_is_missing && self.asked.is_some_and(|asked| asked.elapsed() > LONGEST_PAUSE) {
            self.pause = FIRST_PAUSE;
        }
    }

    fn due(&self, is_new: bool) -> Instant {
        let Some(asked) = self.asked else { return Instant::now() };
        let pause = if is_new { self.pause.min(BETWEEN_QUESTIONS) } else { self.pause };
        let pause = if self.broken { pause.min(BROKEN) } else { pause };
        asked + if self.lost { pause.min(LONGEST_PAUSE_FOR_LOST) } else { pause }
    }

    fn resource(&self, kind: &KindRef) -> Result<ApiResource, NotServed> {
        match &self.answer {
            Err(why) => Err(NotServed::Unanswered(why.clone())),
            Ok(discovered) => discovered.resource(kind).map_err(|error| match error {
                LookupError::Api(_) => NotServed::Unanswered(error.reason().into()),
                LookupError::NotServed(why) => NotServed::Unknown(why.into()),
            }),
        }
    }
}

/// The reason for which a kind has no resource.
enum NotServed {
    /// Discovery didn't answer.
    Unanswered(ArcStr),
    /// The API server doesn't serve it.
    Unknown(ArcStr),
}

impl Templates {
    /// Evaluates the named kinds whenever they change, and when discovery is due. Drop the future to stop.
    pub(super) async fn follow(self: Arc<Self>, tasks: TaskTracker, ended: CancellationToken) {
        let mut changed = self.store.wanted_kinds_changed();
        let (sender, mut news) = mpsc::unbounded_channel();
        let mut following = BTreeMap::<KindRef, Following>::new();
        let mut questions =
            Questions { answer: Err(ArcStr::new()), asked: None, pause: FIRST_PAUSE, broken: false, lost: false };
        let mut number = 0;
        let mut said = LogLimit::new(NAMED);
        loop {
            changed.borrow_and_update();
            let named = self.store.wanted_kinds();
            let is_new = {
                let states = self.states.lock();
                named.keys().any(|kind| !states.contains_key(kind))
            };
            if !named.is_empty() {
                questions.ask(&self.management, &named, is_new).await;
            }
            drop_unnamed(&mut following, &named);
            let (resources, mut unserved) = served(&questions, &named, &following);
            let mut in_order: Vec<_> = following.iter().map(|(kind, followed)| (followed.number, kind)).collect();
            in_order.sort_unstable();
            let refused = refusals(in_order.into_iter().map(|(_, kind)| kind), resources.keys(), &named);
            unserved.extend(refused.iter().map(|(kind, refusal)| (kind.clone(), Refusal::why(*refusal).into())));
            for (kind, resource) in resources {
                if refused.contains_key(&kind) {
                    if let Some(followed) = following.get(&kind) {
                        followed.dropped.cancel();
                    }
                } else if let Some(followed) = following.get(&kind) {
                    found(followed, Ok(resource));
                } else {
                    number += 1;
                    let followed = self.start(&kind, number, resource, (&tasks, &ended, &sender));
                    following.insert(kind, followed);
                }
            }
            self.report_to_others(&named, &unserved, &following, &mut said);
            questions.rest(unserved.is_empty());
            questions.lost = unserved.keys().any(|kind| following.contains_key(kind));
            // A kind that isn't served may be installed later.
            let again = if unserved.is_empty() && !questions.broken { None } else { Some(questions.due(false)) };
            let again = again.into_iter().chain(said.due().map(Instant::from_std)).min();
            let ends = following.values().filter_map(|followed| Some(followed.unnamed_since? + GRACE)).min();
            sleep(BETWEEN_LOOKS).await;
            tokio::select! {
                seen = changed.changed() => if seen.is_err() { return },
                () = until(again) => {}
                () = until(ends) => {}
                Some(heard) = news.recv() => match heard {
                    News::Broken => questions.broken = true,
                    News::Dropped(kind) => { following.remove(&kind); }
                },
            }
        }
    }

    fn start(
        self: &Arc<Self>,
        kind: &KindRef,
        number: u64,
        resource: ApiResource,
        (tasks, ended, news): (&TaskTracker, &CancellationToken, &mpsc::UnboundedSender<News>),
    ) -> Following {
        let (found, served) = watch::channel(Ok(resource));
        let dropped = CancellationToken::new();
        let (templates, ended, news) = (Arc::clone(self), ended.clone(), news.clone());
        let (kind, is_dropped) = (kind.clone(), dropped.clone());
        self.report(&kind, KindState::Pending);
        self.spawner.spawn_tracked(tasks, async move {
            let followed = templates.follow_kind(&kind, served, &is_dropped, &news);
            if ended.run_until_cancelled(followed).await.is_some() {
                templates.forget(&kind);
                // The receiver is dropped at shutdown.
                let _ = news.send(News::Dropped(kind));
            }
        });
        Following { number, found, dropped, unnamed_since: None }
    }

    async fn follow_kind(
        &self,
        kind: &KindRef,
        mut served: watch::Receiver<Found>,
        dropped: &CancellationToken,
        news: &mpsc::UnboundedSender<News>,
    ) {
        let mut previous: Option<Followed<InfrastructureTemplate, TemplateStore>> = None;
        while !dropped.is_cancelled() {
            let found = served.borrow_and_update().clone();
            match found {
                Err(why) => {
                    self.report(kind, KindState::Unreadable(why));
                    dropped.run_until_cancelled(served.changed()).await;
                }
                Ok(resource) => {
                    let followed = self.followed(kind, resource, previous.take());
                    dropped.run_until_cancelled(self.watch_over(kind, &followed, &mut served, news)).await;
                    previous = Some(followed);
                }
            }
        }
        for key in previous.map(Followed::end).unwrap_or_default() {
            Sink::<InfrastructureTemplate>::delete(&*self.store, kind, key);
        }
    }

    fn followed(
        &self,
        kind: &KindRef,
        resource: ApiResource,
        previous: Option<Followed<InfrastructureTemplate, TemplateStore>>,
    ) -> Followed<InfrastructureTemplate, TemplateStore> {
        match previous {
            Some(followed) if *followed.resource() == resource => followed,
            previous => Followed::start(
                self.management.factory_of_templates(),
                resource,
                self.namespaces.clone(),
                InfrastructureTemplate::projection(),
                (&self.store, kind.clone()),
                previous,
            ),
        }
    }

    /// Reports the kind's health, and returns when the kind is served differently.
    async fn watch_over(
        &self,
        kind: &KindRef,
        followed: &Followed<InfrastructureTemplate, TemplateStore>,
        served: &mut watch::Receiver<Found>,
        news: &mpsc::UnboundedSender<News>,
    ) {
        let mut broken_since: Option<Instant> = None;
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
            self.report(kind, state);
            if broken_since.is_some_and(|since| since.elapsed() > BROKEN) {
                broken_since = None;
                // The receiver is dropped at shutdown.
                let _ = news.send(News::Broken);
            }
            let synced = async {
                if health.synced {
                    std::future::pending::<()>().await;
                }
                followed.synced().await;
            };
            tokio::select! {
                _ = served.changed() => return,
                () = synced => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Reports the reason of each kind that isn't followed, and forgets kinds that aren't named any more. `said` limits
    /// the log lines: whoever may write a group can name another kind all the time.
    fn report_to_others(
        &self,
        named: &BTreeMap<KindRef, BTreeSet<ArcStr>>,
        unserved: &BTreeMap<KindRef, ArcStr>,
        following: &BTreeMap<KindRef, Following>,
        said: &mut LogLimit<()>,
    ) {
        let mut states = self.states.lock();
        let is_over = |(kind, known): &(&KindRef, &Known)| {
            !known.is_followed && !named.contains_key(*kind) && !following.contains_key(*kind)
        };
        let over: Vec<_> = states.iter().filter(is_over).map(|(kind, _)| kind.clone()).collect();
        for kind in &over {
            states.remove(kind);
        }
        let others = unserved.iter().filter(|(kind, _)| !following.contains_key(*kind));
        let mut changed = Vec::new();
        for (kind, why) in others {
            let known = Known { state: KindState::Unreadable(why.clone()), is_followed: false };
            if states.get(kind) != Some(&known) {
                states.insert(kind.clone(), known);
                changed.push((kind, why));
            }
        }
        drop(states);
        for kind in over {
            self.store.set_kind(&kind, None);
        }
        let now = Instant::now().into_std();
        for ((), kinds) in said.over(now) {
            tracing::warn!(kinds, "infrastructure templates of further kinds that node groups name can't be read");
        }
        for (kind, why) in changed {
            if let Some(more) = said.allows((), 1, now) {
                tracing::warn!(%kind, more, "infrastructure templates of this kind can't be read: {why}");
            }
            self.store.set_kind(kind, Some(KindState::Unreadable(why.clone())));
        }
    }

    fn report(&self, kind: &KindRef, state: KindState) {
        let known = Known { state: state.clone(), is_followed: true };
        let before = self.states.lock().insert(kind.clone(), known);
        if before.map(|known| known.state).as_ref() != Some(&state) {
            if let KindState::Unreadable(why) = &state {
                tracing::warn!(%kind, "infrastructure templates of this kind can't be read: {why}");
            }
            self.store.set_kind(kind, Some(state));
        }
    }

    fn forget(&self, kind: &KindRef) {
        self.states.lock().remove(kind);
        self.store.set_kind(kind, None);
        tracing::info!(%kind, "infrastructure templates of this kind aren't followed any more");
    }
}

/// Records which kinds aren't named any more, and drops those for which [`GRACE`] has passed.
fn drop_unnamed(following: &mut BTreeMap<KindRef, Following>, named: &BTreeMap<KindRef, BTreeSet<ArcStr>>) {
    let now = Instant::now();
    for (kind, followed) in following {
        if named.contains_key(kind) {
            followed.unnamed_since = None;
        } else if now.saturating_duration_since(*followed.unnamed_since.get_or_insert(now)) >= GRACE {
            followed.dropped.cancel();
            // The entry stays until the kind's task reports that its objects are removed.
            followed.unnamed_since = Some(now);
        }
    }
}

/// Returns the resources of the named kinds, and for the others the reason for having none. The tasks of followed kinds
/// are notified, and keep their resource if discovery didn't answer.
fn served(
    questions: &Questions,
    named: &BTreeMap<KindRef, BTreeSet<ArcStr>>,
    following: &BTreeMap<KindRef, Following>,
) -> (BTreeMap<KindRef, ApiResource>, BTreeMap<KindRef, ArcStr>) {
    let (mut resources, mut unserved) = (BTreeMap::new(), BTreeMap::new());
    for kind in named.keys() {
        match (questions.resource(kind), following.get(kind)) {
            (Ok(resource), _) => {
                resources.insert(kind.clone(), resource);
            }
            (Err(NotServed::Unknown(why)), Some(followed)) => {
                found(followed, Err(why.clone()));
                unserved.insert(kind.clone(), why);
            }
            (Err(NotServed::Unanswered(_)), Some(_)) => {}
            (Err(NotServed::Unanswered(why) | NotServed::Unknown(why)), None) => {
                unserved.insert(kind.clone(), why);
            }
        }
    }
    (resources, unserved)
}

fn found(followed: &Following, now: Found) {
    followed.found.send_if_modified(|known| {
        let changed = *known != now;
        if changed {
            *known = now;
        }
        changed
    });
}

/// Waits until this time; forever if it is `None`.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Returns one check for all kinds that aren't followed. Anybody who may write a group can make up such names, and
/// each check is a series of the metrics.
pub(super) fn not_followed(kinds: &[(&KindRef, &Known)]) -> Option<Check> {
    let named = kinds.iter().take(NAMED).filter_map(|(kind, known)| match &known.state {
        KindState::Unreadable(why) => Some(format!("{kind}: {why}")),
        KindState::Pending | KindState::Synced => None,
    });
    let mut named: Vec<_> = named.collect();
    if kinds.len() > NAMED {
        named.push(format!("and {} more", kinds.len() - NAMED));
    }
    (!named.is_empty()).then(|| Check::informational(OTHER_TEMPLATES, named.join("; ")))
}

// The choice of the template kinds to follow. The number of kinds is limited in total and per namespace: kinds named
// in one namespace must never displace those named in others. The functions here are pure.

/// The maximum number of followed kinds: each costs a list, a watch and the objects they deliver.
const KINDS: usize = 64;
/// The maximum number of followed kinds that count for one namespace.
pub(super) const KINDS_OF_A_NAMESPACE: usize = 16;

/// The limit that keeps a kind from being followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusal {
    /// Each namespace that names the kind has reached its limit.
    OfItsNamespaces,
    /// The total limit is reached.
    InAll,
}

impl Refusal {
    fn why(self) -> String {
        match self {
            Self::OfItsNamespaces => format!(
                "node groups of its namespace name more than {KINDS_OF_A_NAMESPACE} kinds of infrastructure templates, \
                 and this one isn't followed: name fewer, or state the capacity by annotations"
            ),
            Self::InAll => format!(
                "node groups name more than {KINDS} kinds of infrastructure templates, and this one isn't followed: name \
                 fewer, or state the capacity by annotations"
            ),
        }
    }
}

/// Chooses the kinds to follow among the served ones: first those in `followed`, oldest first, then the others by name.
/// Returns the kinds beyond the limits, with the reason.
///
/// A kind counts for one of the namespaces that name it: the one with the fewest kinds so far.
fn refusals<'a>(
    followed: impl IntoIterator<Item = &'a KindRef>,
    served: impl IntoIterator<Item = &'a KindRef>,
    named: &BTreeMap<KindRef, BTreeSet<ArcStr>>,
) -> BTreeMap<KindRef, Refusal> {
    let (mut places, mut all) = (BTreeMap::<&ArcStr, usize>::new(), 0);
    let mut seen = BTreeSet::new();
    let mut refused = BTreeMap::new();
    for kind in followed.into_iter().chain(served) {
        if !seen.insert(kind) {
            continue;
        }
        // A kind that isn't named any more counts in the total until it is dropped.
        let Some(namespaces) = named.get(kind) else {
            all += 1;
            continue;
        };
        let fewest = namespaces.iter().min_by_key(|namespace| places.get(*namespace).copied().unwrap_or_default());
        let taken = fewest.and_then(|namespace| places.get(namespace)).copied().unwrap_or_default();
        if taken >= KINDS_OF_A_NAMESPACE {
            refused.insert(kind.clone(), Refusal::OfItsNamespaces);
        } else if all >= KINDS {
            refused.insert(kind.clone(), Refusal::InAll);
        } else {
            all += 1;
            if let Some(namespace) = fewest {
                *places.entry(namespace).or_default() += 1;
            }
        }
    }
    refused
}

// The wait for templates at the start of a cluster. Cluster Autoscaler's first loop must have all groups to choose
// from, with their templates.

/// The reason for which Refresh fails meanwhile.
pub(super) const FIRST_TEMPLATES: &str = "the first list isn't complete yet";

/// The maximum time after the sync of the core kinds for which Refresh fails while templates aren't listed yet.
const TEMPLATES_AT_START: Duration = Duration::from_secs(10);

/// The wait for templates of one index.
#[derive(Default)]
pub(super) struct TemplatesAtStart(Mutex<Start>);

/// The progress of the start.
#[derive(Default)]
enum Start {
    /// Core kinds aren't in sync yet.
    #[default]
    CoreKinds,
    /// The templates that groups name are still in their first list.
    Templates { until: Instant },
    /// Nothing is awaited any more: a template that can't be read affects only its own groups.
    Over,
}

impl TemplatesAtStart {
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.0.lock(), Start::Over)
    }

    /// Goes on with the start, given that the core kinds are in sync, and returns true while it waits for templates. Ends
    /// the first sync of the index once it doesn't.
    pub(super) fn advance(&self, index: &Index) -> bool {
        let mut start = self.0.lock();
        let now = Instant::now();
        if let Start::CoreKinds = *start {
            *start = Start::Templates { until: now + TEMPLATES_AT_START };
        }
        let waits = match *start {
            Start::Templates { until } => now < until && !index.has_settled(),
            Start::CoreKinds | Start::Over => false,
        };
        let ends = !waits && !matches!(*start, Start::Over);
        if ends {
            *start = Start::Over;
        }
        drop(start);
        if ends {
            index.end_first_sync();
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> KindRef {
        KindRef { group: "infrastructure.example.com".into(), kind: name.into() }
    }

    fn named(kinds: &[(KindRef, &[&str])]) -> BTreeMap<KindRef, BTreeSet<ArcStr>> {
        let namespaces = |names: &&[&str]| names.iter().map(|name| ArcStr::from(*name)).collect();
        kinds.iter().map(|(kind, names)| (kind.clone(), namespaces(names))).collect()
    }

    #[test]
    fn a_kind_that_others_name_too_counts_for_whom_has_the_fewest() {
        let mut all: Vec<_> = (0..20).map(|n| (kind(&format!("A{n:03}")), &["hostile"] as &[&str])).collect();
        all.push((kind("Shared"), &["hostile", "team"]));
        let all = named(&all);
        assert!(!refusals([], all.keys(), &all).contains_key(&kind("Shared")));
    }

    #[test]
    fn a_followed_template_kind_keeps_its_place_against_new_ones() {
        let namespaces: Vec<_> = (0..20).map(|n| format!("n{n}")).collect();
        let spread = (0..KINDS + 10).map(|n| (kind(&format!("A{n:03}")), namespaces[n % 20].as_str()));
        let mut all: BTreeMap<_, BTreeSet<ArcStr>> =
            spread.map(|(kind, namespace)| (kind, BTreeSet::from([namespace.into()]))).collect();
        all.insert(kind("Z"), BTreeSet::from(["late".into()]));
        let first = refusals([&kind("Z")], all.keys(), &all);
        assert!(!first.contains_key(&kind("Z")));
        assert_eq!(first.len(), 11);
        assert!(first.values().all(|why| *why == Refusal::InAll), "{first:?}");
        let unnamed = kind("Unnamed");
        assert_eq!(refusals([&unnamed], all.keys(), &all).len(), 12, "until it is dropped it takes a place");
    }
}

//! Cluster API's controllers, kubelets, MachineHealthCheck and hooks on the host of the API. The plan decides the lag
//! of each view, the time of each step, the writes that fail, and the fate of every Machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use jiff::Timestamp;
use parking_lot::Mutex;
use sandbox::{
    Behaviour, CapiVersion, Settings, Times,
    api::Api,
    clock::Clock,
    engine::{
        Act, Controller, Controllers, Fate, Fault, HealthCheck, Hook, HookPoint, Kind, Observed, Options, Plugin,
        Rejoin, Step, Unready,
    },
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    entropy::{self, Nanos, SECOND},
    faults::Decision,
    host::TICK,
    network::Port,
    outages::Shortage,
    plan::{Chance, Habits, Plan},
    setup::{self, Place},
};

/// The upper limit of steps in which a world must settle at its start.
const FIRST_STEPS: usize = 100_000;

/// The state that controllers share with the world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    /// The revisions that a MachineHealthCheck wrote.
    pub(crate) foreign: Arc<Mutex<BTreeSet<u64>>>,
    /// The state that the MachineSet controller had observed for its newest writes, by revision.
    pub(crate) observed: Arc<Mutex<BTreeMap<u64, Observed>>>,
    /// The faults that struck.
    pub(crate) struck: Arc<Mutex<Vec<Decision>>>,
    /// The time until which Cluster API is down, unless habits are calm.
    pub(crate) down_until: Arc<Mutex<Nanos>>,
}

/// The lag, faults and trouble of the controllers of one world.
#[derive(Clone, Debug)]
struct Weather {
    /// The level of the views' lag, from 0 (milliseconds) to 2 (up to 40 s).
    lag: usize,
    /// The level of the pauses between writes, from 0 (milliseconds) to 2 (seconds).
    pause: usize,
    /// The number of failing writes in 10,000.
    faults: u32,
    /// The percentage of Machines with an unusual fate.
    trouble: u32,
    /// The number of restarts of Cluster API.
    restarts: u64,
    /// The time from which every reconcile of a MachineSet ends with an error, up to the end.
    ails_from: Option<Nanos>,
}

impl Weather {
    const CALM: Self = Self { lag: 0, pause: 0, faults: 0, trouble: 0, restarts: 0, ails_from: None };

    fn of(draw: &mut Rng) -> Self {
        Self {
            lag: draw.usize(0..3),
            pause: draw.usize(0..3),
            faults: [0, 20, 100, 400][draw.usize(0..4)],
            trouble: [0, 10, 35][draw.usize(0..3)],
            restarts: [0, 0, 1, 4][draw.usize(0..4)],
            ails_from: None,
        }
    }

    /// In a third of the worlds every MachineSet fails to reconcile from some time on.
    fn ailing(self, draw: &mut Rng, until: Nanos) -> Self {
        let from = draw.u64(0..until.max(1));
        Self { ails_from: (draw.u32(0..3) == 0).then_some(from), ..self }
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Wake {
    Observe(Controller, Kind),
    Step(Controller),
    Restart(u64),
}

/// The Cluster of a fleet whose objects controllers reconcile.
#[derive(Clone, Debug)]
pub(crate) struct Concern {
    pub(crate) number: usize,
    pub(crate) place: Place,
    /// The API of its workload cluster.
    pub(crate) workload: Api,
}

impl Concern {
    /// Returns the number of an actor whose decisions are about this Cluster.
    fn actor(&self, actor: usize) -> usize {
        self.number * ACTORS + actor
    }
}

/// More than the number of the actors of one Cluster.
const ACTORS: usize = 1000;

pub(crate) struct Driver {
    controllers: Controllers,
    api: Api,
    chance: Chance,
    weather: Weather,
    /// The time at which faults and trouble end.
    until: Nanos,
    skipped: BTreeSet<Decision>,
    shared: Shared,
    habits: Habits,
    /// The first actor of their decisions.
    actors: usize,
    wakes: BTreeSet<(Nanos, u64, Wake)>,
    planned: BTreeSet<Wake>,
    ordinals: BTreeMap<Wake, u64>,
    drawn: u64,
    /// The time until which Cluster API's controllers do nothing.
    down_until: Nanos,
}

fn draw_version(draw: &mut Rng) -> CapiVersion {
    CapiVersion::ALL[draw.usize(0..CapiVersion::ALL.len())]
}

/// Returns the version of Cluster API in a world.
pub(crate) fn version(chance: Chance) -> CapiVersion {
    draw_version(&mut chance.of("controllers", 0, 0))
}

impl Driver {
    /// Creates the controllers of an API, before any event; those of a fleet for each Cluster.
    pub(crate) fn new(
        api: &Api,
        chance: Chance,
        until: Nanos,
        (habits, plan): (Habits, &Plan),
        shared: Shared,
        concern: Option<(&Concern, CapiVersion)>,
    ) -> Self {
        let (skipped, with_kubeadm, differ) = (plan.skipped.clone(), plan.kubeadm, plan.remember);
        let mut draw = chance.of("controllers", 0, 0);
        let drawn = draw_version(&mut draw);
        let version = concern.map_or(drawn, |(_, version)| version);
        let actors = concern.map_or(0, |(concern, _)| concern.actor(0));
        let weather = match habits {
            Habits::Calm => Weather::CALM,
            Habits::Any => Weather::of(&mut draw).ailing(&mut chance.of("ailing", 0, 0), until),
        };
        let (mut weather, mut shortage) = (weather, Shortage::of(chance, habits, until));
        let stands = |what, ordinal| {
            let decision = Decision { what, actor: actors, ordinal };
            let stands = !skipped.contains(&decision);
            if stands {
                shared.struck.lock().push(decision);
            }
            stands
        };
        weather.ails_from = weather.ails_from.filter(|_| stands("ailing", 0));
        shortage = shortage.filter(|_| stands(Shortage::DECISION.what, 0));
        let health = (habits == Habits::Any && draw.u32(0..3) == 0).then(|| HealthCheck {
            unhealthy: Duration::from_secs(draw.u64(60..300)),
            startup: Duration::from_secs(draw.u64(600..1200)),
        });
        let pools = setup::pool_ways(chance);
        let cluster = concern.map(|(concern, _)| (concern.place.namespace.to_owned(), concern.place.name.to_owned()));
        let options = Options { version, settings: Settings::default(), health, pools, cluster, ..Options::default() };
        let trouble = weather.trouble;
        let mut machines = 0;
        let (struck, left_out) = (shared.struck.clone(), skipped.clone());
        let fates = move |machine: &Value| {
            machines += 1;
            let trouble = if entropy::now() < until { trouble } else { 0 };
            let draw = |trouble| Fate { with_kubeadm, ..fate(&mut chance.of("fate", 0, machines), trouble) };
            let (mut drawn, usual) = (draw(trouble), draw(0));
            let decision = Decision { what: "fate", actor: actors, ordinal: machines };
            if drawn != usual && left_out.contains(&decision) {
                drawn = usual;
            } else if drawn != usual {
                struck.lock().push(decision);
            }
            if differ {
                drawn.missing_memory = chance.of("memory", 0, machines).u32(0..4) * 128;
                drawn.plugin = Some(plugin(&mut chance.of("plugin", 0, machines)));
            }
            if let Some(shortage) = shortage.as_ref().filter(|shortage| shortage.meets(machine)) {
                drawn.behaviour = shortage.behaviour;
            }
            drawn
        };
        let workload = concern.map_or(api, |(concern, _)| &concern.workload);
        let controllers = Controllers::new(api, workload, Clock::real(), options, Box::new(fates));
        let mut driver = Self {
            controllers,
            api: api.clone(),
            chance,
            until,
            skipped,
            shared,
            habits,
            actors,
            wakes: BTreeSet::new(),
            planned: BTreeSet::new(),
            ordinals: BTreeMap::new(),
            drawn: 0,
            down_until: 0,
            weather,
        };
        for restart in 0..driver.weather.restarts {
            let at = draw.u64(0..until.max(1));
            driver.add(at, Wake::Restart(restart));
        }
        driver
    }

    /// Runs all steps of the world's start.
    pub(crate) fn settle(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.controllers.settle(FIRST_STEPS),
            "the controllers don't come to rest within {FIRST_STEPS} steps"
        );
        Ok(())
    }

    /// Runs until the host ends.
    pub(crate) async fn run(mut self, port: Port) {
        port.note(format!("Cluster API {:?}: {:?}", self.controllers.version(), self.weather));
        let mut changes = self.controllers.subscribe();
        let [management, workload] = &mut changes[..] else { return };
        loop {
            management.borrow_and_update();
            workload.borrow_and_update();
            self.wake(&port);
            self.plan();
            let next = self.next();
            let due = async {
                match next {
                    Some(wait) => sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                heard = management.changed() => if heard.is_err() { return },
                heard = workload.changed() => if heard.is_err() { return },
                () = due => {}
            }
        }
    }

    fn is_calm(&self) -> bool {
        entropy::now() >= self.until
    }

    /// Returns the time until which a controller does nothing.
    fn down_until(&self, controller: Controller) -> Nanos {
        let by_others = if self.habits == Habits::Calm { 0 } else { *self.shared.down_until.lock() };
        let is_concerned = Controller::OF_CLUSTER_API.contains(&controller);
        if is_concerned { self.down_until.max(by_others).min(self.until) } else { 0 }
    }

    fn add(&mut self, at: Nanos, wake: Wake) {
        self.drawn += 1;
        self.wakes.insert((at, self.drawn, wake));
        self.planned.insert(wake);
    }

    fn ordinal(&mut self, wake: Wake) -> u64 {
        let ordinal = self.ordinals.entry(wake).or_default();
        *ordinal += 1;
        *ordinal
    }

    fn wake(&mut self, port: &Port) {
        while let Some(&(at, _, wake)) = self.wakes.first()
            && at <= entropy::now()
        {
            self.wakes.pop_first();
            self.planned.remove(&wake);
            match wake {
                Wake::Observe(controller, _) | Wake::Step(controller)
                    if self.down_until(controller) > entropy::now() =>
                {
                    self.add(self.down_until(controller), wake);
                }
                Wake::Observe(controller, kind) => self.observe(controller, kind),
                Wake::Step(controller) => self.step(controller, port),
                Wake::Restart(ordinal) => self.restart(ordinal, port),
            }
        }
    }

    fn observe(&mut self, controller: Controller, kind: Kind) {
        let ordinal = self.ordinal(Wake::Observe(controller, kind));
        let mut draw = self.chance.of("seen", actor(controller, Some(kind)), ordinal);
        let behind = self.controllers.behind(controller, kind);
        let most = if draw.bool() || self.is_calm() { behind } else { draw.u64(1..=behind.max(1)) };
        self.controllers.observe(controller, kind, most);
    }

    fn step(&mut self, controller: Controller, port: &Port) {
        let ordinal = self.ordinal(Wake::Step(controller));
        let mut draw = self.chance.of("step", actor(controller, None), ordinal);
        let pick = draw.u64(..);
        let fault = match draw.u32(0..20_000) {
            chance if chance < self.weather.faults => Fault::Before,
            chance if chance < 2 * self.weather.faults => Fault::After,
            _ => Fault::None,
        };
        let decision = Decision { what: "controller", actor: self.actors + actor(controller, None), ordinal };
        let strikes = fault != Fault::None && !self.is_calm() && !self.skipped.contains(&decision);
        self.controllers.set_ailing(self.weather.ails_from.is_some_and(|from| entropy::now() >= from));
        let before = self.api.revision();
        let Some(step) = self.controllers.step(controller, pick, if strikes { fault } else { Fault::None }) else {
            return;
        };
        if controller == Controller::MachineHealthCheck {
            self.shared.foreign.lock().extend(before + 1..=self.api.revision());
        }
        if controller == Controller::MachineSet {
            self.shared
                .observed
                .lock()
                .extend((before + 1..=self.api.revision()).map(|revision| (revision, step.observed)));
        }
        if is_struck(&step) {
            self.shared.struck.lock().push(decision);
        }
        if step.act != Act::Planned(0) {
            port.note(step.to_string());
        }
    }

    fn restart(&mut self, ordinal: u64, port: &Port) {
        let decision = Decision { what: "restart", actor: self.actors, ordinal };
        if self.skipped.contains(&decision) {
            return;
        }
        self.shared.struck.lock().push(decision);
        let mut draw = self.chance.of("downtime", 0, ordinal);
        let seconds = if draw.bool() { draw.u64(10..300) } else { 0 };
        port.note(format!("Cluster API restarts, and is down for {seconds} s"));
        self.down_until = entropy::now() + seconds * SECOND;
        for controller in Controller::OF_CLUSTER_API {
            self.controllers.restart(controller);
        }
    }

    /// Schedules every event that can occur now and isn't scheduled.
    fn plan(&mut self) {
        for controller in Controller::ALL {
            for kind in controller.reads() {
                let wake = Wake::Observe(controller, *kind);
                if !self.planned.contains(&wake) && self.controllers.behind(controller, *kind) > 0 {
                    let ordinal = self.ordinals.get(&wake).copied().unwrap_or_default();
                    let mut draw = self.chance.of("lag", actor(controller, Some(*kind)), ordinal);
                    let lag = if self.is_calm() { draw.u64(1..20) * TICK } else { lag(&mut draw, self.weather.lag) };
                    self.add(entropy::now() + lag, wake);
                }
            }
            let wake = Wake::Step(controller);
            if !self.planned.contains(&wake) && self.controllers.has_work(controller) {
                let ordinal = self.ordinals.get(&wake).copied().unwrap_or_default();
                let mut draw = self.chance.of("pause", actor(controller, None), ordinal);
                let level = if self.is_calm() { 0 } else { self.weather.pause };
                let pause = pause(&mut draw, level);
                self.add(entropy::now() + pause, wake);
            }
        }
    }

    /// Returns the time until the next event.
    fn next(&self) -> Option<Duration> {
        let wake = self.wakes.first().map(|(at, ..)| Duration::from_nanos(at.saturating_sub(entropy::now())));
        let now = Timestamp::now();
        let times = Controller::ALL.into_iter().filter_map(|controller| self.controllers.next(controller));
        let later = times.min().map(|time| Duration::try_from(time.duration_since(now)).unwrap_or_default());
        wake.into_iter().chain(later).min().map(|wait| wait.max(Duration::from_nanos(TICK)))
    }
}

fn is_struck(step: &Step) -> bool {
    matches!(step.act, Act::Failed(_) | Act::Lost(_))
}

/// Returns the actor number of a controller's decisions, or of its decisions about a kind.
fn actor(controller: Controller, kind: Option<Kind>) -> usize {
    controller as usize * 10 + kind.map_or(9, |kind| kind as usize)
}

fn lag(draw: &mut Rng, level: usize) -> Nanos {
    let milliseconds = match (level, draw.u32(0..100)) {
        (0, _) => draw.u64(1..50),
        (1, 0..5) => draw.u64(500..5_000),
        (1, _) => draw.u64(1..300),
        (_, 0..5) => draw.u64(5_000..40_000),
        (_, _) => draw.u64(1..2_000),
    };
    milliseconds * TICK
}

fn pause(draw: &mut Rng, level: usize) -> Nanos {
    let milliseconds = match (level, draw.u32(0..100)) {
        (0, _) => draw.u64(1..10),
        (1, 0..10) => draw.u64(50..1_000),
        (1, _) => draw.u64(1..50),
        (_, 0..10) => draw.u64(1_000..8_000),
        (_, _) => draw.u64(1..500),
    };
    milliseconds * TICK
}

/// Draws a device plugin, which may be late, restart, or never come.
fn plugin(draw: &mut Rng) -> Plugin {
    let seconds = |draw: &mut Rng, most| Duration::from_secs(draw.u64(1..most));
    Plugin {
        devices: draw.u32(0..4),
        after: seconds(draw, 120),
        restart: (draw.u32(0..3) == 0).then(|| (seconds(draw, 600), seconds(draw, 60))),
    }
}

fn fate(draw: &mut Rng, trouble: u32) -> Fate {
    let seconds = |draw: &mut Rng, usual: std::ops::Range<u64>, most: u64| {
        let rarely = draw.u32(0..100) < trouble / 2;
        Duration::from_millis(if rarely { draw.u64(usual.end..most) } else { draw.u64(usual) })
    };
    let times = Times {
        bootstrap: seconds(draw, 100..5_000, 60_000),
        provision: seconds(draw, 2_000..40_000, 300_000),
        join: seconds(draw, 2_000..40_000, 900_000),
        ready: seconds(draw, 500..15_000, 120_000),
        drain: seconds(draw, 500..20_000, 300_000),
        terminate: seconds(draw, 1_000..30_000, 200_000),
        slow_factor: 1,
    };
    let mut fate = Fate::plain(times);
    fate.reference = seconds(draw, 0..2_000, 240_000);
    fate.lingers = seconds(draw, 1_000..60_000, 240_000);
    if draw.u32(0..100) >= trouble {
        return fate;
    }
    let long = |draw: &mut Rng| Duration::from_secs(draw.u64(5..240));
    match draw.u32(0..9) {
        0 => fate.behaviour = Behaviour::NeverJoins,
        1 => fate.behaviour = Behaviour::Fails,
        2 => fate.behaviour = Behaviour::NoCapacity,
        3 => fate.rejoins = Some(Rejoin { after: long(draw), gap: long(draw) }),
        4 | 5 => fate.unready = Some(Unready { after: long(draw), lasts: long(draw) * 2 }),
        6 => fate.hook = Some(Hook { at: HookPoint::PreDrain, held: long(draw) }),
        7 => fate.hook = Some(Hook { at: HookPoint::PreTerminate, held: long(draw) }),
        _ => fate.hang = long(draw),
    }
    fate
}

//! An exhaustive search of a model, breadth first, so that the trace to a violation is a shortest one. It knows nothing
//! of the domain that is modelled, and must never leave out a state without reporting it.

use std::{
    collections::VecDeque,
    fmt::{self, Display},
    hash::{BuildHasher, Hash},
};

use foldhash::fast::FixedState;

use indexmap::{IndexMap, IndexSet};

/// A model that can be searched.
pub trait Model {
    /// The complete state at one moment.
    type State: Copy + Eq + Hash;
    /// A transition between two states.
    type Step: Display;

    /// Returns the state in which the search begins.
    fn initial(&self) -> Self::State;
    /// Passes all transitions that are possible next to `found`.
    fn steps(&self, state: &Self::State, found: &mut dyn FnMut(Next<Self>));
    /// Checks the invariants of a state, and those that hold only at rest, when nothing but the environment can act.
    fn check(&self, state: &Self::State, at_rest: bool) -> Result<(), String>;
}

/// A possible transition.
pub struct Next<M: Model + ?Sized> {
    /// The transition.
    pub step: M::Step,
    /// The state after it; `None` if it leads beyond the bounds.
    pub state: Option<M::State>,
    /// True if it happens sooner or later if it can; false if it is a free choice of the environment.
    pub is_certain: bool,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// The number of distinct states.
    pub states: usize,
    /// The number of steps between them.
    pub steps: usize,
    /// The number of states at rest.
    pub at_rest: usize,
    /// The number of steps that led beyond the bounds and weren't followed.
    pub cut: usize,
    /// The number of states that are on an infinite path, or only reached through one.
    pub endless: usize,
    /// True if all states were visited.
    pub is_complete: bool,
    /// The violated rule, with the trace to it.
    pub broken: Option<Broken>,
}

/// A violated rule.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The description of the violation.
    pub what: String,
    /// The steps that lead there, on a shortest path.
    pub trace: Vec<String>,
}

impl Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.trace.iter().enumerate() {
            writeln!(formatter, "{:>3}. {step}", number + 1)?;
        }
        write!(formatter, "     => {}", self.what)
    }
}

/// Searches all states, or as many as `most_states`. If all hold, it also looks for infinite paths: every path of
/// certain steps must end at rest.
pub fn explore<M: Model>(model: &M, most_states: usize) -> Found {
    let mut search = Search::new(model);
    let mut position = 0;
    while let Some(state) = search.waiting.pop_front() {
        if search.prints.len() > most_states {
            search.found.is_complete = false;
            break;
        }
        search.visit(model, position, &state);
        if search.found.broken.is_some() {
            break;
        }
        position += 1;
    }
    if search.found.broken.is_none() && search.found.is_complete {
        search.look_for_cycles(model);
    }
    search.found.states = search.prints.len();
    search.found
}

/// The states at rest of a search, by what tells them apart.
pub struct Ends<M: Model, K> {
    /// The result of the search. An infinite path is the only violation in it.
    pub found: Found,
    /// The distinct ends, each with the number of the state in which it was found first.
    pub ends: IndexMap<K, usize>,
    search: Search<M::State>,
}

impl<M: Model, K> Ends<M, K> {
    /// Returns the steps of a shortest path to a state.
    pub fn trace(&self, model: &M, position: usize) -> Vec<String> {
        self.search.trace(model, position)
    }
}

/// Searches all states, or as many as `most_states`, and collects those at rest, whether they are violations or not.
pub fn collect<M: Model, K: Eq + Hash>(model: &M, most_states: usize, end: impl Fn(&M::State) -> K) -> Ends<M, K> {
    let mut search = Search::new(model);
    let mut ends = IndexMap::new();
    let mut position = 0;
    while let Some(state) = search.waiting.pop_front() {
        if search.prints.len() > most_states {
            search.found.is_complete = false;
            break;
        }
        if search.expand(model, position, &state) {
            ends.entry(end(&state)).or_insert(position);
        }
        position += 1;
    }
    if search.found.is_complete {
        search.look_for_cycles(model);
    }
    search.found.states = search.prints.len();
    Ends { found: search.found.clone(), ends, search }
}

struct Search<S> {
    /// A 64-bit fingerprint of each state seen. The probability that two of a hundred million states share one, so that
    /// one of them is skipped, is below one in a thousand.
    prints: IndexSet<u64, FixedState>,
    /// The states not visited yet, in the order of their fingerprints.
    waiting: VecDeque<S>,
    /// The state by which each state was found first.
    parents: Vec<u32>,
    /// The certain steps: the offset in `leads_to` at which those of each state begin, and the states they lead to.
    begins: Vec<u32>,
    leads_to: Vec<u32>,
    found: Found,
}

fn fingerprint(state: &impl Hash) -> u64 {
    FixedState::with_seed(1).hash_one(state)
}

impl<S: Copy + Eq + Hash> Search<S> {
    fn new<M: Model<State = S>>(model: &M) -> Self {
        let mut prints = IndexSet::with_hasher(FixedState::with_seed(2));
        prints.insert(fingerprint(&model.initial()));
        let waiting = VecDeque::from([model.initial()]);
        let found = Found { states: 1, steps: 0, at_rest: 0, cut: 0, endless: 0, is_complete: true, broken: None };
        Self { prints, waiting, parents: vec![0], begins: vec![0], leads_to: Vec::new(), found }
    }

    fn visit<M: Model<State = S>>(&mut self, model: &M, position: usize, state: &S) {
        let at_rest = self.expand(model, position, state);
        if let Err(what) = model.check(state, at_rest) {
            self.found.broken = Some(Broken { what, trace: self.trace(model, position) });
        }
    }

    /// Finds all steps from a state. Returns true if it is at rest.
    fn expand<M: Model<State = S>>(&mut self, model: &M, position: usize, state: &S) -> bool {
        let mut at_rest = true;
        model.steps(state, &mut |next: Next<M>| {
            at_rest &= !next.is_certain;
            self.found.steps += 1;
            let Some(then) = next.state else {
                self.found.cut += 1;
                return;
            };
            let (index, is_new) = self.prints.insert_full(fingerprint(&then));
            if is_new {
                self.waiting.push_back(then);
                self.parents.push(u32::try_from(position).unwrap_or(u32::MAX));
            }
            if next.is_certain {
                self.leads_to.push(u32::try_from(index).unwrap_or(u32::MAX));
            }
        });
        self.begins.push(u32::try_from(self.leads_to.len()).unwrap_or(u32::MAX));
        self.found.at_rest += usize::from(at_rest);
        at_rest
    }

    /// Looks for cycles: it repeatedly removes the states that no certain step leads to, and any state that remains is
    /// on a cycle or behind one.
    fn look_for_cycles<M: Model<State = S>>(&mut self, model: &M) {
        let count = self.prints.len();
        let mut arrivals = vec![0_u32; count];
        for &to in &self.leads_to {
            arrivals[to as usize] += 1;
        }
        let mut free: Vec<usize> = (0..count).filter(|index| arrivals[*index] == 0).collect();
        let mut taken = 0;
        while let Some(from) = free.pop() {
            taken += 1;
            for &to in &self.leads_to[self.begins[from] as usize..self.begins[from + 1] as usize] {
                arrivals[to as usize] -= 1;
                if arrivals[to as usize] == 0 {
                    free.push(to as usize);
                }
            }
        }
        self.found.endless = count - taken;
        if taken < count {
            let first = arrivals.iter().position(|count| *count > 0).unwrap_or_default();
            let what = "from here it may go on for ever without coming to rest".to_owned();
            self.found.broken = Some(Broken { what, trace: self.trace(model, first) });
        }
    }

    fn trace<M: Model<State = S>>(&self, model: &M, mut position: usize) -> Vec<String> {
        let mut way = Vec::new();
        while position != 0 {
            way.push(self.prints[position]);
            position = self.parents[position] as usize;
        }
        let mut state = model.initial();
        let mut trace = Vec::new();
        for print in way.into_iter().rev() {
            let mut then = None;
            model.steps(&state, &mut |next: Next<M>| {
                if let Some(reached) = next.state
                    && then.is_none()
                    && fingerprint(&reached) == print
                {
                    then = Some((next.step.to_string(), reached));
                }
            });
            let Some((step, reached)) = then else { break };
            trace.push(step);
            state = reached;
        }
        trace
    }
}

//! A small world: one group, its Machines, and Cluster API's controllers, whose views lag. It answers calls, lets
//! everybody but the program act, and judges what becomes of Machines.

/// The maximum number of Machines, replacements included.
pub(super) const SLOTS: usize = 7;
/// The number of versions that the MachineSet controller may see.
const LAG: usize = 3;
/// What bounds a search: the group at the beginning, what is possible, and, from `deletes` on, how often something may
/// happen. `bare`: the group is a MachineSet without a MachineDeployment. `lags`: the controller may see a smaller size
/// before the deletions that preceded it. `prompt`: no Machine is gone before its smaller size is seen, unless the program
/// takes five seconds. `join`: a DeleteNodes may come while another one deletes. `hangs`: calls of a copy have no answer
/// for five seconds, or until it does something else. `changes`: the status of a Machine is written.
const NAMES: &str = "nodes pending missing min copies batch bare lags prompt join deletes placeholders decreases increases \
                     crashes lost-answers refusals hangs leaves foreign-deletes foreign-sizes joins changes";

/// A set of Machines, one bit each.
pub(super) type Set = u8;

pub(super) fn one(machine: usize) -> Set {
    1 << machine
}

pub(super) fn each(set: Set) -> impl Iterator<Item = usize> {
    (0..SLOTS).filter(move |machine| set & one(*machine) != 0)
}

fn position(name: &str) -> usize {
    NAMES.split(' ').position(|known| known == name).unwrap()
}

/// The bounds of a search, or what is left of them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Bounds([u8; 23]);

impl Bounds {
    /// Parses a text such as `--nodes 3 --deletes 2`. Without words about it there are two copies, and batches of one.
    pub(super) fn parse(text: &str) -> Self {
        let mut bounds = Self([0; 23]);
        for part in ["copies 2", "batch 1"].into_iter().chain(text.split("--").skip(1)).map(str::trim) {
            let (name, number) = part.split_once(' ').unwrap_or((part, "1"));
            bounds.0[position(name)] = number.parse().unwrap();
        }
        bounds
    }

    pub(super) fn of(&self, name: &str) -> usize {
        self.0[position(name)].into()
    }

    /// Returns true for a Machine that isn't there at the beginning.
    fn is_later(&self, machine: usize) -> bool {
        machine >= self.of("nodes") + self.of("pending")
    }
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) enum Life {
    #[default]
    Unborn,
    Alive,
    Deleting,
    Gone,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Machine {
    pub(super) life: Life,
    pub(super) has_node: bool,
    /// Cluster API shows the phase `Deleting`.
    pub(super) is_seen: bool,
    /// It is being deleted for more than a minute, and has lost its Node.
    pub(super) hangs: bool,
    pub(super) version: u8,
}

impl Machine {
    pub(super) fn is_there(self) -> bool {
        matches!(self.life, Life::Alive | Life::Deleting)
    }
}

/// The objects as watches show them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Shown {
    pub(super) machines: [Machine; SLOTS],
    pub(super) size: usize,
    pub(super) version: usize,
}

impl Shown {
    pub(super) fn all(&self, is_in: impl Fn(&Machine) -> bool) -> Set {
        (0..SLOTS).filter(|machine| is_in(&self.machines[*machine])).map(one).sum()
    }

    fn of_life(&self, life: Life) -> Set {
        self.all(|machine| machine.life == life)
    }

    fn is_deleted(&self) -> Set {
        self.of_life(Life::Deleting) | self.of_life(Life::Gone)
    }
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Command {
    /// The Machines that it names, those of them that it names as ones without a Node, and the number of replicas.
    Delete(Set, Set, usize),
    Increase,
    Decrease,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Call {
    /// The sizes from and to, and the number of the field manager among those of the copy.
    TrySize(usize, usize),
    Size(usize, usize, usize),
    /// The Machine and its version.
    TryDelete(usize, Option<u8>),
    Delete(usize, Option<u8>),
    ReadGroup,
    ReadMachine(usize),
    List,
}

impl Call {
    pub(super) fn writes(&self) -> bool {
        matches!(self, Self::Size(..) | Self::Delete(..))
    }
}

/// An answer: its code, 0 if the connection was cut, the objects that it has, and the number of the writer of the size, if
/// that is one of the copy.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) objects: Shown,
    pub(super) writer: Option<usize>,
}

impl Answer {
    pub(super) fn failed(code: u16) -> Self {
        Self { code, ..Self::default() }
    }
}

/// A copy of the program, and what it has done.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Copy {
    /// The number of its list of events; 0 if there is no such copy.
    pub(super) log: usize,
    /// The number of the field manager under which it was the last one to write the size.
    wrote: Option<usize>,
    /// The Machines that it has deleted, without those for which it has lowered the size, and all of them.
    unpaid: Set,
    deleted: Set,
    /// The call that arrives after its connection was cut.
    pub(super) late: Option<Call>,
}

/// What has happened, as far as ends are judged by it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Tally {
    /// The Machines that a DeleteNodes has named, those that it named by their Nodes, and those for which it was OK.
    named: Set,
    by_node: Set,
    pub(super) accepted: Set,
    /// The Machines that may be replaced, by cause: their copy ended, their smaller size was refused, their DELETE had no
    /// answer, somebody else deleted them, or they had no Node and were to be replaced at the minimum.
    crashed: Set,
    refused: Set,
    unanswered: Set,
    foreign: Set,
    replaced: Set,
    /// The Machines for which the program has taken five seconds to lower the size.
    slow: Set,
    /// The numbers of Machines with a Node that the controller took although nobody had named them: since its view of
    /// Machines lagged, since a named one was replaced before its smaller size was seen, and for no reason.
    unnamed: [usize; 3],
    was_behind: bool,
    /// A Machine that wasn't there at the beginning has joined, or was named or deleted.
    later_matters: bool,
    /// The numbers of sizes that somebody else has lowered, of replicas to give up, and of increases.
    foreign_fewer: usize,
    to_give_up: usize,
    to_raise: usize,
    /// A call has failed, or somebody else has written.
    pub(super) is_disturbed: bool,
    /// What mustn't happen at all.
    pub(super) fault: Option<&'static str>,
}

/// A state of the search.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct World {
    pub(super) now: Shown,
    /// The sizes that the controller may see, each with the Machines that were deleted before.
    pub(super) sizes: Vec<(usize, Set)>,
    /// The Machines that it may see: those that are being deleted, those without a Node, and those with one.
    pub(super) views: Vec<[Set; 3]>,
    pub(super) copies: [Copy; 2],
    pub(super) left: Bounds,
    pub(super) tally: Tally,
}

impl World {
    pub(super) fn new(left: Bounds) -> Self {
        let machines = std::array::from_fn(|number| {
            let life = if left.is_later(number) { Life::Unborn } else { Life::Alive };
            Machine { life, has_node: number < left.of("nodes"), version: 1, ..Machine::default() }
        });
        let now = Shown { machines, size: left.of("nodes") + left.of("pending") + left.of("missing"), version: 1 };
        let (copies, tally) = (<[Copy; 2]>::default(), Tally::default());
        let mut world = Self { now, sizes: vec![(now.size, 0)], views: Vec::new(), copies, left, tally };
        world.keep_view();
        world
    }

    /// Returns the state in which something has happened once more, if it may.
    pub(super) fn spend(&self, what: &str) -> Option<Self> {
        let left = self.left.0[position(what)].checked_sub(1)?;
        let mut then = self.clone();
        then.left.0[position(what)] = left;
        let by_others = ["lost-answers", "refusals", "foreign-deletes", "foreign-sizes"];
        then.tally.is_disturbed |= by_others.contains(&what);
        Some(then)
    }

    pub(super) fn can_ask(&self) -> bool {
        ["deletes", "placeholders", "decreases", "increases"].into_iter().any(|what| self.left.of(what) > 0)
    }

    fn keep_view(&mut self) {
        let (alive, with_node) = (self.now.of_life(Life::Alive), self.now.all(|machine| machine.has_node));
        keep(&mut self.views, [self.now.of_life(Life::Deleting), alive & !with_node, alive & with_node]);
    }

    /// Changes a Machine, which the controller sees sooner or later.
    fn change(&mut self, number: usize, change: impl FnOnce(&mut Machine)) {
        let (machine, view) = (&mut self.now.machines[number], self.views.last().copied());
        machine.version += 1;
        change(machine);
        let is_born = machine.life == Life::Alive && !machine.has_node;
        self.keep_view();
        self.tally.later_matters |= self.left.is_later(number) && !is_born && self.views.last().copied() != view;
    }

    fn resize(&mut self, size: usize, by: Option<(usize, usize)>) {
        (self.now.size, self.now.version) = (size, self.now.version + 1);
        for (number, copy) in self.copies.iter_mut().enumerate() {
            copy.wrote = by.filter(|(writer, _)| *writer == number).map(|(_, wrote)| wrote);
        }
        keep(&mut self.sizes, (size, self.now.is_deleted()));
    }

    /// Carries out a call of a copy.
    pub(super) fn carry_out(&mut self, copy: usize, call: Call) -> Answer {
        let Shown { machines, size, .. } = self.now;
        match call {
            Call::TrySize(from, _) | Call::Size(from, ..) if from != size => return Answer::failed(422),
            Call::Size(from, to, writer) => {
                self.resize(to, Some((copy, writer)));
                self.account(copy, from, to);
            }
            Call::ReadMachine(one) | Call::TryDelete(one, _) | Call::Delete(one, _) if !machines[one].is_there() => {
                return Answer::failed(404);
            }
            Call::TryDelete(one, Some(seen)) | Call::Delete(one, Some(seen)) if seen != machines[one].version => {
                return Answer::failed(409);
            }
            Call::Delete(one, _) if machines[one].life == Life::Alive => self.delete(copy, one),
            _ => {}
        }
        let mut objects = self.now;
        match call {
            Call::TrySize(..) | Call::Size(..) | Call::ReadGroup => objects.machines = Shown::default().machines,
            Call::ReadMachine(one) | Call::TryDelete(one, _) | Call::Delete(one, _) => {
                objects = Shown::default();
                objects.machines[one] = self.now.machines[one];
            }
            Call::List => (objects.size, objects.version) = (0, 0),
        }
        Answer { code: 200, objects, writer: self.copies[copy].wrote.filter(|_| call == Call::ReadGroup) }
    }

    fn delete(&mut self, copy: usize, machine: usize) {
        if self.now.machines[machine].has_node && self.tally.by_node & one(machine) == 0 {
            self.tally.fault = Some("a Machine with a Node was deleted as one without");
        }
        if !self.now.machines[machine].has_node && self.now.size <= self.left.of("min") {
            self.tally.replaced |= one(machine);
        }
        self.copies[copy].deleted |= one(machine);
        self.copies[copy].unpaid |= one(machine);
        self.change(machine, |it| it.life = Life::Deleting);
    }

    /// Judges a size that a copy has written.
    fn account(&mut self, copy: usize, from: usize, to: usize) {
        let (tally, copy) = (&mut self.tally, &mut self.copies[copy]);
        for _ in from..to {
            match tally.to_raise.checked_sub(1) {
                Some(left) => tally.to_raise = left,
                None => tally.fault = Some("the size was raised too often"),
            }
        }
        for _ in to..from {
            if copy.unpaid != 0 {
                copy.unpaid &= copy.unpaid - 1;
            } else if tally.to_give_up > 0 {
                tally.to_give_up -= 1;
            } else if tally.crashed != 0 {
                // A call that arrives late may be that of a copy that has ended.
                tally.crashed &= tally.crashed - 1;
            } else {
                tally.fault = Some("the size was lowered by more than this copy has deleted or was to give up");
            }
        }
        if to < from && to < self.left.of("min") {
            tally.fault = Some("the size was lowered below the minimum");
        }
    }

    /// Notes that a call is refused or, if nothing is, that it has no answer.
    pub(super) fn note_failed(&mut self, copy: usize, call: Call, is_refused: bool) {
        match call {
            Call::Size(..) if is_refused => self.tally.refused |= self.copies[copy].unpaid,
            Call::Delete(machine, _) if !is_refused => self.tally.unanswered |= one(machine),
            _ => {}
        }
    }

    /// Notes that a copy has done nothing for five seconds; it isn't to, unless it has called.
    pub(super) fn note_waiting(&mut self, has_called: bool) {
        self.tally.slow |= self.copies[0].unpaid | self.copies[1].unpaid;
        self.tally.fault = self.tally.fault.or((!has_called).then_some("a command never ends"));
    }

    /// Ends a copy: nobody lowers the size for what it has deleted.
    pub(super) fn crash(&mut self, copy: usize) {
        self.tally.crashed |= self.copies[copy].unpaid;
        self.copies[copy] = Copy { late: self.copies[copy].late, ..Copy::default() };
    }

    /// Returns the commands that a copy may get whose watches show this.
    pub(super) fn asks(&self, shown: &Shown) -> Vec<(Command, Self)> {
        let (alive, bare) = (shown.of_life(Life::Alive), shown.all(|machine| !machine.has_node));
        let is_one = |named: &Set| named & !alive == 0 && each(*named).count() <= self.left.of("batch");
        let delete = |named: Set| ("deletes", Command::Delete(named, named & bare, 0));
        let mut all: Vec<_> = (1..=alive).filter(is_one).map(delete).collect();
        all.push(("placeholders", Command::Delete(0, 0, 1)));
        all.extend([("increases", Command::Increase), ("decreases", Command::Decrease)]);
        all.into_iter().filter_map(|(what, command)| Some((command, self.spend(what)?.asked(command)))).collect()
    }

    fn asked(mut self, command: Command) -> Self {
        match command {
            Command::Increase => self.tally.to_raise += 1,
            Command::Decrease => self.tally.to_give_up += 1,
            Command::Delete(named, bare, replicas) => {
                self.tally.named |= named & self.now.of_life(Life::Alive);
                self.tally.by_node |= named & !bare;
                self.tally.later_matters |= each(named).any(|machine| self.left.is_later(machine));
                self.tally.to_give_up += replicas;
            }
        }
        self
    }

    /// Finds what controllers, the infrastructure and others do.
    pub(super) fn environment(&self, is_idle: bool) -> Vec<(&'static str, Self)> {
        let mut found = Vec::new();
        let mut change = |then: Option<Self>, machine, what, change: fn(&mut Machine)| {
            let Some(mut then) = then else { return };
            then.change(machine, change);
            found.push((what, then));
        };
        let unpaid = if is_idle { 0 } else { self.copies[0].unpaid | self.copies[1].unpaid };
        for machine in each(self.now.of_life(Life::Deleting)) {
            let it = self.now.machines[machine];
            let is_awaited = unpaid & one(machine) != 0 || self.sizes.len() > 1;
            let is_early = self.left.of("prompt") > 0 && is_awaited && self.tally.slow & one(machine) == 0;
            change(Some(self.clone()).filter(|_| !is_early), machine, "a Machine is gone", |it| {
                *it = Machine { life: Life::Gone, version: it.version, ..Machine::default() };
            });
            // A command has ended when a Machine is being deleted for a minute.
            let hangs = Some(self.clone()).filter(|_| self.left.of("placeholders") > 0 && is_idle && !it.hangs);
            change(hangs, machine, "a Machine hangs", |it| (it.has_node, it.hangs) = (false, true));
            // The Machine controller has the cache of the MachineSet controller.
            let shows = self.views.iter().position(|[deleting, ..]| deleting & one(machine) != 0);
            if let Some(position) = shows.filter(|_| self.left.of("bare") > 0 && !it.is_seen) {
                let mut then = self.clone();
                then.views.drain(..position);
                change(Some(then), machine, "a deletion is seen", |it| it.is_seen = true);
            }
        }
        for machine in each(self.now.of_life(Life::Alive)) {
            let joins = self.spend("joins").filter(|_| !self.now.machines[machine].has_node);
            change(joins, machine, "a Machine joins", |it| it.has_node = true);
            change(self.spend("changes"), machine, "a Machine changes", |_| {});
            let mut deleted = self.spend("foreign-deletes");
            if let Some(then) = &mut deleted {
                then.tally.foreign |= one(machine);
            }
            change(deleted, machine, "somebody deletes a Machine", |it| it.life = Life::Deleting);
        }
        let (size, least) = (self.now.size, self.left.of("min").max(1));
        for to in [size + 1, size.saturating_sub(1)].into_iter().filter(|to| *to >= least) {
            let Some(mut then) = self.spend("foreign-sizes") else { continue };
            then.tally.foreign_fewer += usize::from(to < size);
            then.resize(to, None);
            found.push(("somebody writes the size", then));
        }
        for at in 0..self.sizes.len() {
            found.extend(self.views.iter().filter_map(|view| self.reconcile(at, *view)));
        }
        found
    }

    /// Lets the MachineSet controller act on a size and a view. It takes Machines that are being deleted first, then
    /// those without a Node, then by name, and waits until it sees what it has done.
    fn reconcile(&self, at: usize, view: [Set; 3]) -> Option<(&'static str, Self)> {
        let (size, deleted) = self.sizes[at];
        let (mut then, there) = (self.clone(), view.into_iter().flat_map(each).count());
        if self.left.of("lags") == 0 && deleted & (view[1] | view[2]) != 0 {
            return None;
        }
        for victim in view.into_iter().flat_map(each).take(there.saturating_sub(size)) {
            then.take(view, victim);
        }
        for _ in there..size {
            // Worlds with more replacements than slots aren't searched.
            let new = each(then.now.of_life(Life::Unborn)).next()?;
            then.change(new, |it| it.life = Life::Alive);
            let [one, other] = self.copies;
            let is_behind = one.unpaid | other.unpaid | self.tally.crashed != 0 || at + 1 < self.sizes.len();
            let gone = self.now.of_life(Life::Gone) & (one.deleted | other.deleted | self.tally.crashed);
            then.tally.was_behind |= is_behind && gone != 0;
        }
        if then.now != self.now {
            then.views.drain(..then.views.len() - 1);
        } else if at == 0 {
            return None;
        }
        then.sizes.drain(..at);
        Some(("the MachineSet controller acts", then))
    }

    fn take(&mut self, view: [Set; 3], victim: usize) {
        let Machine { life, has_node, .. } = self.now.machines[victim];
        if life != Life::Alive {
            return;
        }
        if self.tally.named & one(victim) != 0 {
            self.tally.foreign |= one(victim);
        } else if has_node {
            let lags = self.tally.named & self.now.is_deleted() & (view[1] | view[2]) != 0;
            let is_behind = self.tally.was_behind && self.tally.later_matters;
            self.tally.unnamed[if lags { 0 } else { 2 - usize::from(is_behind) }] += 1;
        }
        self.change(victim, |it| it.life = Life::Deleting);
    }

    /// Returns true if controllers and infrastructure have nothing to do.
    pub(super) fn is_at_rest(&self) -> bool {
        let alive = each(self.now.of_life(Life::Alive)).count();
        let is_settled = self.sizes.len() == 1 && alive == self.now.size && self.now.of_life(Life::Deleting) == 0;
        is_settled && self.copies.iter().all(|copy| copy.late.is_none())
    }

    /// Returns what a user would notice of an end, in the order of [`super::HARMS`].
    pub(super) fn harms(&self) -> [bool; 8] {
        let Tally { crashed, refused, unanswered, replaced, unnamed: [lagged, behind, unnamed], .. } = self.tally;
        let unpaid = (self.copies[0].unpaid | self.copies[1].unpaid) & !replaced;
        let foreign = self.tally.named & self.tally.foreign & self.now.of_life(Life::Gone);
        let left = unpaid & !refused & !unanswered;
        let others = self.copies.iter().all(|copy| copy.deleted != 0) || self.tally.foreign_fewer > 0;
        let at_min = self.now.size == self.left.of("min") && others;
        let is_late = behind > 0 && self.left.of("prompt") > 0;
        let stays = self.tally.accepted & self.now.of_life(Life::Alive);
        [
            lagged > 0,
            behind > 0,
            crashed & !replaced != 0,
            unpaid & refused != 0,
            unpaid & unanswered & !refused != 0,
            foreign != 0,
            left != 0 && at_min,
            self.tally.fault.is_some()
                || stays != 0
                || is_late
                || unnamed > self.tally.foreign_fewer
                || left != 0 && !at_min,
        ]
    }
}

/// Adds the newest of the versions that are kept.
fn keep<T: PartialEq>(versions: &mut Vec<T>, newest: T) {
    if versions.last() != Some(&newest) {
        versions.push(newest);
    }
    if versions.len() > LAG {
        versions.remove(0);
    }
}

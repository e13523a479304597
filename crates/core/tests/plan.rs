//! What the planner promises whatever happens, shown on a world that behaves like a runtime.

use jiff::Timestamp;
use osb_api::SandboxId;
use osb_core::{
    Desired, Exit, Goal, IdleAction, IdleRule, ImageName, LastUse, Observed, ObservedState, Phase,
    Reason, SandboxSpec, Status, Step, Token, plan,
};
use proptest::{prelude::*, test_runner::FileFailurePersistence};

/// More rounds than any plan needs once nothing disturbs it: ensure, start, record, record pausing,
/// pause, record paused, and one to see that nothing is left to do; and one more to find that nobody
/// uses it.
const ROUNDS: usize = 9;

/// The world of one sandbox, and what is known of it.
#[derive(Debug, Clone)]
struct World {
    desired: Desired,
    state: Option<ObservedState>,
    now: i64,
    last_use: LastUse,
    forgotten: bool,
    /// How an entrypoint ends that ends at once.
    brief: Option<Exit>,
}

/// What others do between two rounds.
#[derive(Debug, Clone)]
enum Event {
    Goal(Goal),
    Exit(Exit),
    Vanish,
    Start,
    Reappear,
    Pass(i64),
    Renew(i64),
    Use(LastUse),
}

impl World {
    fn observed(&self) -> Option<Observed> {
        self.state.clone().map(|state| Observed::new(self.desired.spec.id, state))
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.now).expect("a time within range")
    }

    fn plan(&self) -> Vec<Step> {
        plan(&self.desired, self.observed().as_ref(), self.last_use, self.now())
    }

    /// Plans and applies; whether there was anything to do.
    fn round(&mut self) -> bool {
        let steps = self.plan();
        for step in &steps {
            self.apply(step);
        }
        let moved = self.proceed();
        !steps.is_empty() || moved
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Record(status) => self.desired.status = status.clone(),
            Step::Ensure if matches!(self.state, None | Some(ObservedState::Gone)) => {
                self.state = Some(ObservedState::Starting);
            }
            Step::Pause if self.state == Some(ObservedState::Running) => {
                self.state = Some(ObservedState::Paused);
            }
            Step::Resume if self.state == Some(ObservedState::Paused) => {
                self.state = Some(ObservedState::Running);
            }
            Step::Ensure | Step::Pause | Step::Resume => {}
            Step::Rest => {
                self.desired.goal = match self.desired.idle.map(|rule| rule.action) {
                    Some(IdleAction::Pause) => Goal::Asleep,
                    Some(IdleAction::Remove) => Goal::Removed,
                    None => panic!("without a rule it rested"),
                }
            }
            Step::Wake => self.desired.goal = Goal::Running,
            Step::Remove => self.state = None,
            Step::Forget => self.forgotten = true,
        }
    }

    /// What the runtime does by itself.
    fn proceed(&mut self) -> bool {
        if self.state != Some(ObservedState::Starting) {
            return false;
        }
        self.state = Some(self.brief.map_or(ObservedState::Running, ObservedState::Exited));
        true
    }

    fn suffer(&mut self, event: &Event) {
        match event {
            // A server takes no further wishes for what is to be removed.
            Event::Goal(_) if self.desired.goal == Goal::Removed => {}
            Event::Goal(goal) => self.desired.goal = *goal,
            Event::Exit(exit) if self.state.is_some() => {
                self.state = Some(ObservedState::Exited(*exit));
            }
            Event::Exit(_) => {}
            Event::Vanish => self.state = None,
            Event::Start => drop(self.proceed()),
            Event::Reappear => self.state = Some(ObservedState::Running),
            Event::Use(last) => self.last_use = *last,
            Event::Pass(seconds) => self.now += seconds,
            Event::Renew(seconds) => {
                let expiry = Timestamp::from_second(self.now + seconds);
                self.desired.expires_at = Some(expiry.expect("a time within range"));
            }
        }
    }
}

fn exits() -> impl Strategy<Value = Exit> {
    prop_oneof![
        any::<i32>().prop_map(Exit::Code),
        (1..32).prop_map(Exit::Signal),
        Just(Exit::OutOfMemory),
        Just(Exit::Unknown),
    ]
}

fn states() -> impl Strategy<Value = ObservedState> {
    prop_oneof![
        Just(ObservedState::Starting),
        Just(ObservedState::Running),
        Just(ObservedState::Paused),
        exits().prop_map(ObservedState::Exited),
        Just(ObservedState::Gone),
    ]
}

fn goals() -> impl Strategy<Value = Goal> {
    prop_oneof![Just(Goal::Running), Just(Goal::Paused), Just(Goal::Asleep), Just(Goal::Removed),]
}

fn uses() -> impl Strategy<Value = LastUse> {
    let time = |seconds| Timestamp::from_second(seconds).expect("a time within range");
    prop_oneof![
        Just(LastUse::Now),
        (999_800..1_000_200_i64).prop_map(move |seconds| LastUse::At(time(seconds))),
    ]
}

fn rules() -> impl Strategy<Value = IdleRule> {
    let actions = prop_oneof![Just(IdleAction::Pause), Just(IdleAction::Remove)];
    (1..100_u32, actions).prop_map(|(seconds, action)| IdleRule { seconds, action })
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        goals().prop_map(Event::Goal),
        exits().prop_map(Event::Exit),
        Just(Event::Vanish),
        Just(Event::Start),
        Just(Event::Reappear),
        (0..50_i64).prop_map(Event::Pass),
        (-10..100_i64).prop_map(Event::Renew),
        uses().prop_map(Event::Use),
    ]
}

prop_compose! {
    /// Any record beside any world, whether or not one could have led to the other.
    fn worlds()(
        goal in goals(),
        phase in proptest::sample::select(Phase::ALL.to_vec()),
        expires_in in proptest::option::of(-100..100_i64),
        state in proptest::option::of(states()),
        brief in proptest::option::of(exits()),
        idle in proptest::option::of(rules()),
        last_use in uses(),
    ) -> World {
        let now = 1_000_000;
        let time = |seconds| Timestamp::from_second(seconds).expect("a time within range");
        let spec = SandboxSpec::new(SandboxId::random(), ImageName::new("host"), vec!["sleep".to_owned()], Token::new("t"));
        let status = Status {
            phase,
            reason: Reason::UserRequest,
            message: String::new(),
            since: time(now - 60),
        };
        let expires_at = expires_in.map(|seconds| time(now + seconds));
        let desired = Desired { spec, goal, expires_at, idle, status };
        World { desired, state, now, last_use, forgotten: false, brief }
    }
}

fn is_doomed(world: &World) -> bool {
    let expired = world.desired.expires_at.is_some_and(|at| at <= world.now());
    world.desired.goal == Goal::Removed || expired || world.desired.status.phase == Phase::Stopping
}

/// Whether a record of `phase` may be made beside what is seen.
fn is_supported(phase: Phase, seen: Option<&ObservedState>) -> bool {
    match phase {
        Phase::Running | Phase::Pausing => seen == Some(&ObservedState::Running),
        Phase::Paused | Phase::Resuming => seen == Some(&ObservedState::Paused),
        Phase::Terminated => seen == Some(&ObservedState::Exited(Exit::Code(0))),
        Phase::Failed => {
            matches!(seen, None | Some(ObservedState::Gone | ObservedState::Exited(_)))
        }
        Phase::Stopping => !matches!(seen, None | Some(ObservedState::Gone)),
        Phase::Pending => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::with_cases(512)
    })]

    #[test]
    fn every_step_is_fit_for_what_is_seen(world in worlds()) {
        let before = world.desired.status.clone();
        let phase = before.phase;
        let seen = world.state.as_ref();
        let gone = matches!(seen, None | Some(ObservedState::Gone));
        for step in world.plan() {
            match step {
                Step::Record(status) => {
                    prop_assert!(is_supported(status.phase, seen), "{} on {seen:?}", status.phase);
                    if status.phase == phase {
                        prop_assert!(status.message != before.message, "{phase} is recorded again");
                        prop_assert_eq!(status.since, before.since);
                    } else {
                        prop_assert_eq!(status.since, world.now());
                    }
                }
                Step::Ensure => prop_assert!(phase == Phase::Pending && gone),
                Step::Pause => prop_assert_eq!(seen, Some(&ObservedState::Running)),
                Step::Resume => prop_assert_eq!(seen, Some(&ObservedState::Paused)),
                Step::Rest => {
                    prop_assert!(world.last_use != LastUse::Now && phase == Phase::Running);
                    prop_assert_eq!(world.desired.goal, Goal::Running);
                }
                Step::Wake => {
                    prop_assert!(world.last_use == LastUse::Now);
                    prop_assert_eq!(world.desired.goal, Goal::Asleep);
                }
                Step::Remove => prop_assert!(is_doomed(&world) && !gone),
                Step::Forget => prop_assert!(is_doomed(&world) && gone),
            }
        }
    }

    #[test]
    fn what_is_over_is_only_removed(mut world in worlds(), failed: bool) {
        world.desired.status.phase = if failed { Phase::Failed } else { Phase::Terminated };
        for step in world.plan() {
            let removes = match step {
                Step::Record(status) => status.phase == Phase::Stopping,
                Step::Remove | Step::Forget => true,
                Step::Ensure | Step::Pause | Step::Resume | Step::Rest | Step::Wake => false,
            };
            prop_assert!(removes && is_doomed(&world));
        }
    }

    #[test]
    fn an_ended_sandbox_is_never_started_again(mut world in worlds(), exit in exits()) {
        world.state = Some(ObservedState::Exited(exit));
        for step in world.plan() {
            prop_assert!(matches!(step, Step::Record(_) | Step::Remove), "{step:?}");
        }
    }

    #[test]
    fn an_undisturbed_world_comes_to_rest(
        mut world in worlds(),
        events in proptest::collection::vec(events(), 0..20),
    ) {
        for event in &events {
            world.round();
            if world.forgotten {
                return Ok(());
            }
            world.suffer(event);
        }
        let doomed = is_doomed(&world);
        let mut rounds = 0;
        while !world.forgotten && world.round() {
            rounds += 1;
            prop_assert!(rounds < ROUNDS, "no rest after {rounds} rounds: {world:?}");
        }
        if doomed {
            let gone = matches!(world.state, None | Some(ObservedState::Gone));
            prop_assert!(world.forgotten && gone, "something is left: {world:?}");
        }
        if !world.forgotten {
            let phase = world.desired.status.phase;
            let rest = match world.desired.goal {
                Goal::Running => Phase::Running,
                Goal::Paused | Goal::Asleep => Phase::Paused,
                Goal::Removed => Phase::Stopping,
            };
            prop_assert!(phase == rest || phase.is_over(), "{phase} is no place to rest");
        }
    }

    #[test]
    fn a_crash_between_two_steps_does_no_harm(world in worlds(), after in 0..3_usize) {
        let mut whole = world.clone();
        let mut torn = world;
        // The server dies after some of the steps and plans anew.
        for step in torn.plan().iter().take(after) {
            torn.apply(step);
        }
        for world in [&mut whole, &mut torn] {
            for _ in 0..ROUNDS {
                if world.forgotten || !world.round() {
                    break;
                }
            }
        }
        prop_assert_eq!(whole.forgotten, torn.forgotten);
        prop_assert_eq!(whole.state, torn.state);
        prop_assert_eq!(whole.desired.status.phase, torn.desired.status.phase);
    }
}

//! Owns what a workflow is (T5): a graph of steps, checked once, and the run of such a graph.
//!
//! Front ends compile to [`Graph`]; nothing here knows their file formats. A run keeps one intent for each step, so a step's
//! progress is its intent's, and who works on it is decided by leases like everything else.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::{STEP_NAME_BYTES_MAX, WORKFLOW_STEPS_MAX};
use crate::retry::RetryRule;
use crate::serial::{IntentId, PortfolioId, WorkflowId};
use crate::{Holder, Timestamp};

/// One step of a graph, before it is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name in the graph.
    pub name: Box<str>,
    /// What it is about.
    pub title: Box<str>,
    /// In more words.
    pub description: String,
    /// Who does it.
    pub assign: Option<Holder>,
    /// The names of the steps that come first.
    pub depends_on: Vec<Box<str>>,
    /// When it is tried again.
    pub retry: RetryRule,
    /// Who takes over when the agent has failed too often.
    pub fallback: Option<Holder>,
    /// What its intent starts with.
    pub state: Map<String, Value>,
    /// What must be observed.
    pub constraints: Map<String, Value>,
}

/// Why steps make no graph. The number is the step's place among those given, from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGraph {
    /// There are none.
    #[error("a workflow has at least one step")]
    Empty,
    /// There are too many.
    #[error("a workflow has at most {WORKFLOW_STEPS_MAX} steps, this one has {0}")]
    TooMany(usize),
    /// A name is empty or too long.
    #[error("a step's name has 1 to {STEP_NAME_BYTES_MAX} bytes")]
    Name(usize),
    /// Two steps have one name.
    #[error("there are two steps {name:?}")]
    Twice {
        /// The second of them.
        step: usize,
        /// Their name.
        name: Box<str>,
    },
    /// A step waits for one that is not there.
    #[error("step {name:?} depends on {missing:?}, which is not a step of this workflow")]
    Missing {
        /// Which step.
        step: usize,
        /// Its name.
        name: Box<str>,
        /// What is not there.
        missing: Box<str>,
    },
    /// Steps wait for each other.
    #[error("steps wait for each other: {}", .names.join(" -> "))]
    Cycle {
        /// One of them.
        step: usize,
        /// All of them; each waits for the next, the last is the first again.
        names: Vec<Box<str>>,
    },
}

impl BadGraph {
    /// The step it is about, by its place.
    pub fn step(&self) -> Option<usize> {
        match self {
            BadGraph::Empty | BadGraph::TooMany(_) => None,
            BadGraph::Name(step)
            | BadGraph::Twice { step, .. }
            | BadGraph::Missing { step, .. }
            | BadGraph::Cycle { step, .. } => Some(*step),
        }
    }
}

/// Steps of which each can be reached: every dependency exists and none is circular.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    steps: Vec<Step>,
    /// For each step the places of those that come first.
    before: Vec<Vec<usize>>,
}

impl Graph {
    /// Checks steps.
    pub fn new(steps: Vec<Step>) -> Result<Graph, BadGraph> {
        if steps.is_empty() {
            return Err(BadGraph::Empty);
        }
        if steps.len() > WORKFLOW_STEPS_MAX {
            return Err(BadGraph::TooMany(steps.len()));
        }
        let places = places(&steps)?;
        let mut before = Vec::with_capacity(steps.len());
        for (step, of) in steps.iter().enumerate() {
            let mut first = Vec::new();
            for name in &of.depends_on {
                let missing = || BadGraph::Missing { step, name: of.name.clone(), missing: name.clone() };
                let place = *places.get(&**name).ok_or_else(missing)?;
                if !first.contains(&place) {
                    first.push(place);
                }
            }
            before.push(first);
        }
        let graph = Graph { steps, before };
        graph.refuse_cycles()?;
        Ok(graph)
    }

    /// Its steps, as they were given.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The places of the steps that come before the one at `step`.
    pub fn before(&self, step: usize) -> &[usize] {
        self.before.get(step).map_or(&[], Vec::as_slice)
    }

    /// Takes away steps that nothing is left before; what remains waits for each other.
    fn refuse_cycles(&self) -> Result<(), BadGraph> {
        let mut waits: Vec<usize> = self.before.iter().map(Vec::len).collect();
        let mut ready: VecDeque<usize> = (0..waits.len()).filter(|step| waits.get(*step) == Some(&0)).collect();
        let mut done = vec![false; waits.len()];
        while let Some(step) = ready.pop_front() {
            done.iter_mut().skip(step).take(1).for_each(|done| *done = true);
            for (after, waits) in waits.iter_mut().enumerate() {
                if self.before(after).contains(&step) {
                    *waits -= 1;
                    if *waits == 0 {
                        ready.push_back(after);
                    }
                }
            }
        }
        match done.iter().position(|done| !done) {
            None => Ok(()),
            Some(stuck) => Err(self.cycle_from(stuck, &done)),
        }
    }

    /// Follows what is not done until a step comes again.
    fn cycle_from(&self, stuck: usize, done: &[bool]) -> BadGraph {
        let mut way = vec![stuck];
        let mut at = stuck;
        loop {
            let next = self.before(at).iter().copied().find(|step| done.get(*step) == Some(&false)).unwrap_or(at);
            if let Some(from) = way.iter().position(|step| *step == next) {
                let circle = way.iter().skip(from).chain([&next]);
                let names = circle.filter_map(|step| self.steps.get(*step)).map(|step| step.name.clone()).collect();
                return BadGraph::Cycle { step: next, names };
            }
            way.push(next);
            at = next;
        }
    }
}

fn places(steps: &[Step]) -> Result<HashMap<&str, usize>, BadGraph> {
    let mut places = HashMap::new();
    for (step, of) in steps.iter().enumerate() {
        if !(1..=STEP_NAME_BYTES_MAX).contains(&of.name.len()) {
            return Err(BadGraph::Name(step));
        }
        if places.insert(&*of.name, step).is_some() {
            return Err(BadGraph::Twice { step, name: of.name.clone() });
        }
    }
    Ok(places)
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Steps are under way.
    Running,
    /// Every step is done.
    Completed,
    /// A step failed, and nothing more can be done.
    Failed,
}

impl RunStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStatus::Running => "running",
            RunStatus::Completed => "completed",
            RunStatus::Failed => "failed",
        }
    }
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStep {
    /// Its name in the graph.
    pub name: Box<str>,
    /// Who does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assign: Option<Holder>,
    /// Its intent.
    pub intent: IntentId,
}

/// A run of a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: Box<str>,
    /// The portfolio of its intents.
    pub portfolio: PortfolioId,
    /// Who started it.
    pub created_by: Holder,
    /// When.
    pub created_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Where it stands.
    pub status: RunStatus,
    /// Its steps, in the order of the graph.
    pub steps: Vec<RunStep>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(name: &str, depends_on: &[&str]) -> Step {
        Step {
            name: name.into(),
            title: name.into(),
            description: String::new(),
            assign: None,
            depends_on: depends_on.iter().map(|name| (*name).into()).collect(),
            retry: RetryRule::NEVER,
            fallback: None,
            state: Map::new(),
            constraints: Map::new(),
        }
    }

    #[test]
    fn t5_what_is_no_graph_is_refused_with_the_step_that_is_wrong() {
        assert_eq!(Graph::new(vec![]), Err(BadGraph::Empty));
        let twice = Graph::new(vec![step("a", &[]), step("a", &[])]);
        assert_eq!(twice, Err(BadGraph::Twice { step: 1, name: "a".into() }));
        let missing = Graph::new(vec![step("a", &["b"])]);
        assert_eq!(missing, Err(BadGraph::Missing { step: 0, name: "a".into(), missing: "b".into() }));
        let cycle = Graph::new(vec![step("s", &["b"]), step("a", &["b"]), step("b", &["c"]), step("c", &["a"])]);
        let Err(BadGraph::Cycle { names, .. }) = cycle else { panic!("{cycle:?}") };
        assert_eq!(names.first(), names.last());
        assert_eq!(names.len(), 4, "the step that only waits for the circle is not part of it");
        assert!(matches!(Graph::new(vec![step("a", &["a"])]), Err(BadGraph::Cycle { .. })));
    }

    proptest! {
        #[test]
        fn t5_a_graph_is_refused_exactly_if_some_step_can_never_start(edges in prop::collection::vec((0..6usize, 0..6usize), 0..10)) {
            let name = |at: usize| format!("s{at}");
            let steps: Vec<Step> = (0..6).map(|at| {
                let before: Vec<String> = edges.iter().filter(|(after, _)| *after == at).map(|(_, before)| name(*before)).collect();
                step(&name(at), &before.iter().map(String::as_str).collect::<Vec<_>>())
            }).collect();
            let mut started = [false; 6];
            for _ in 0..6 {
                for at in 0..6 {
                    started[at] |= edges.iter().filter(|(after, _)| *after == at).all(|(_, before)| started[*before]);
                }
            }
            prop_assert_eq!(Graph::new(steps).is_ok(), started.iter().all(|started| *started));
        }
    }
}

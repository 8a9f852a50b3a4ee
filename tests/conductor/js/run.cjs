// Workers, the workflow builder and the executor of @io-orkes/conductor-javascript against one server.
// Prints what came of it as one line of JSON.
const { OrkesClients, ConductorWorkflow, TaskManager, simpleTask } = require("@io-orkes/conductor-javascript");

const quiet = { debug() {}, info() {}, warn() {}, error(...words) { console.error(...words); } };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const done = (outputData) => ({ status: "COMPLETED", outputData });

const polls = {};
const workers = [
  { taskDefName: "js_greet", execute: async (task) => done({ greeting: `Hello ${task.inputData.name}` }) },
  {
    taskDefName: "js_long",
    leaseExtendEnabled: true,
    execute: async (task) => {
      polls[task.taskId] = task.pollCount;
      await sleep(5000); // longer than its response timeout
      return done({ slept: true, token: typeof task.token });
    },
  },
  {
    taskDefName: "js_pieces",
    execute: async (task) =>
      task.pollCount < 3
        ? { status: "IN_PROGRESS", callbackAfterSeconds: 1, outputData: { so_far: task.pollCount } }
        : done({ polls: task.pollCount }),
  },
  { taskDefName: "js_fails", execute: async () => { throw new Error("not today"); } },
];

async function main() {
  const clients = await OrkesClients.from({ serverUrl: process.env.CONDUCTOR_SERVER_URL });
  const metadata = clients.getMetadataClient();
  for (const [name, more] of [
    ["js_greet", {}],
    ["js_long", { responseTimeoutSeconds: 2, retryCount: 0 }],
    ["js_pieces", {}],
    ["js_fails", { retryCount: 1, retryDelaySeconds: 0 }],
  ]) {
    await metadata.registerTask({ name, timeoutSeconds: 60, responseTimeoutSeconds: 10, ...more });
  }
  const executor = clients.getWorkflowClient();
  const workflow = new ConductorWorkflow(executor, "js_all")
    .add(simpleTask("greet", "js_greet", { name: "${workflow.input.name}" }))
    .fork([[simpleTask("long", "js_long", {})], [simpleTask("pieces", "js_pieces", {})]])
    .outputParameters({ greeting: "${greet.output.greeting}", slept: "${long.output.slept}", polls: "${pieces.output.polls}" });
  await workflow.register(true);
  await new ConductorWorkflow(executor, "js_failing").add(simpleTask("fails", "js_fails", {})).register(true);

  const manager = new TaskManager(clients.getClient(), workers, { logger: quiet, options: { concurrency: 2, pollInterval: 50 } });
  manager.startPolling();
  const ended = async (id) => {
    for (;;) {
      const run = await executor.getWorkflow(id, true);
      if (run.status !== "RUNNING") return run;
      await sleep(50);
    }
  };
  const all = await ended(await executor.startWorkflow({ name: "js_all", version: 1, input: { name: "Tenure" } }));
  const failing = await ended(await executor.startWorkflow({ name: "js_failing", version: 1, input: {} }));
  await manager.stopPolling();
  const long = all.tasks.find((task) => task.referenceTaskName === "long");
  console.log(JSON.stringify({
    all: { status: all.status, output: all.output, reason: all.reasonForIncompletion },
    long: { polls: long.pollCount, seen: Object.values(polls) },
    failing: { status: failing.status, attempts: failing.tasks.length, reason: failing.reasonForIncompletion },
  }));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });

// Loaded into the cdk CLI where it deploys to LocalStack, which makes a stack in less than a second: the CLI looks only
// every 5 s whether a stack is there, and has no option for that.
const original = globalThis.setTimeout;
const sooner = (callback, milliseconds, ...rest) => original(callback, milliseconds === 5000 ? 200 : milliseconds, ...rest);
globalThis.setTimeout = Object.defineProperties(sooner, Object.getOwnPropertyDescriptors(original));

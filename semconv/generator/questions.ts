/** What whoever runs a pipeline asks, in the order of their numbers, from 1. */
export const QUESTIONS = [
  'Did it raise the output rate?',
  'Did it cut the exposed latency?',
  'Was the queue actually full?',
  'Were the stages busy at the same time?',
  'Was the network delay hidden?',
  'What was wasted?',
  'Did the candidates stay useful?',
  'Did the horizon stay supplied?',
  'Was the output right?',
] as const;

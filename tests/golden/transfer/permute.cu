y[0] = pipelink::pick<0x5410>(x[0], x[2]);
y[1] = pipelink::pick<0x7632>(x[0], x[2]);
y[2] = pipelink::pick<0x5410>(x[1], x[3]);
y[3] = pipelink::pick<0x7632>(x[1], x[3]);

{  // x to y: 4 shuffles
    [[maybe_unused]] const std::uint32_t lane = thread % 32;
    std::uint32_t sent[] = {x[0], x[1], x[2], x[3]};
    {
        const bool here = pipelink::in_lanes(0xaaaaaaaau, lane);
        pipelink::swap_if(here, sent[0], sent[1]);
        pipelink::swap_if(here, sent[2], sent[3]);
    }
    const std::uint32_t from0 = lane % 2 * 2 + lane / 2 % 2 + lane / 4 * 4;
    std::uint32_t got[4];
    got[0] = pipelink::from_lane(sent[0], from0);
    got[1] = pipelink::from_lane(sent[1], from0 ^ 1);
    got[2] = pipelink::from_lane(sent[2], from0);
    got[3] = pipelink::from_lane(sent[3], from0 ^ 1);
    {
        const bool here = pipelink::in_lanes(0xccccccccu, lane);
        pipelink::swap_if(here, got[0], got[1]);
        pipelink::swap_if(here, got[2], got[3]);
    }
    y[0] = pipelink::pick<0x5410>(got[0], got[1]);
    y[1] = pipelink::pick<0x7632>(got[0], got[1]);
    y[2] = pipelink::pick<0x5410>(got[2], got[3]);
    y[3] = pipelink::pick<0x7632>(got[2], got[3]);
}
